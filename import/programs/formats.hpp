#pragma once

#include "import/programs/imported_job.hpp"

namespace flopcast {

/// The formats of other programs, each told by its reader's file: its name, how it is recognised and how it is read.
/// import_job asks them in the order of its list.
const JobFormat& megatron_format();       ///< an argument list, or the shell script that launches it
const JobFormat& llama_factory_format();  ///< LLaMA-Factory's YAML
const JobFormat& recipe_format();         ///< YAML or TOML whose keys a table of import/keys maps one by one
const JobFormat& adapter_format();        ///< PEFT's adapter_config.json
const JobFormat& megatron_yaml_format();  ///< YAML of Megatron Core's fields: NeMo, Megatron-Bridge
const JobFormat& accelerate_format();     ///< Hugging Face Accelerate's YAML
const JobFormat& deepspeed_format();      ///< ds_config.json
const JobFormat& hugging_face_format();   ///< config.json of a model

/// "flopcast reads …": the files that have a reader, for complaints about others.
std::string readable_formats();

/// The values of a file in JSON, YAML or TOML. Throws ConfigError.
nlohmann::json parsed_values(const ForeignFile& file, const ImportContext& context);

}  // namespace flopcast
