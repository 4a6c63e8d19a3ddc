#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/imported_job.hpp"

namespace flopcast {

/// Imports text as if it were the file's; YAML is read as JSON, which it contains. `given` are fields that flags set.
ImportedJob import_text(std::string_view text, const std::string& file, const std::set<std::string>& given = {});

/// The complaint about it; an empty diagnostic when there is none.
Diagnostic import_complaint(std::string_view text, const std::string& file);

/// Whether one of the sentences contains the words.
bool mentions(const std::vector<std::string>& sentences, std::string_view words);

/// Files as their programs take them.
std::string llama3_70b_config();
std::string gpt3_script();
std::string zero3_config();

}  // namespace flopcast
