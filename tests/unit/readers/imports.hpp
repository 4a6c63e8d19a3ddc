#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/imported_job.hpp"

namespace flopcast {

/// Imports text as if it were the file's; YAML is read as JSON, its subset. `given` are fields set by flags.
ImportedJob import_text(std::string_view text, const std::string& file, const std::set<std::string>& given = {});

/// The error of the import; an empty diagnostic if there is none.
Diagnostic import_complaint(std::string_view text, const std::string& file);

/// True if one of the sentences contains the words.
bool mentions(const std::vector<std::string>& sentences, std::string_view words);

/// Files in the formats of their programs.
std::string llama3_70b_config();
std::string gpt3_script();
std::string zero3_config();

}  // namespace flopcast
