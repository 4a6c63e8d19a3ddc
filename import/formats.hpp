#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "import/imported_job.hpp"

namespace flopcast {

/// The readers, one file each. `values` is the parsed file; shell text is parsed by its reader.
ImportedJob read_hugging_face(const nlohmann::json& values, const std::string& file, const ImportContext& context);
ImportedJob read_megatron(std::string_view text, const std::string& file, const ImportContext& context);
ImportedJob read_deepspeed(const nlohmann::json& values, const std::string& file, const ImportContext& context);
ImportedJob read_sizes(const nlohmann::json& values, const std::string& file);
ImportedJob read_accelerate(const nlohmann::json& values, const std::string& file, const ImportContext& context);
ImportedJob read_llama_factory(const nlohmann::json& values, const std::string& file, const ImportContext& context);

}  // namespace flopcast
