#pragma once

#include <string_view>
#include <vector>

namespace flopcast {

/// A file compiled into the program, so that flopcast finds its catalogue wherever it is copied, and in a browser.
struct EmbeddedFile {
  std::string_view path;  ///< relative to the folder that embeds it: "devices/a100-80g.json"
  std::string_view text;
};

/// The catalogue's files, in the order in which the build names them. The source is generated: cmake/embed.cmake.
const std::vector<EmbeddedFile>& embedded_catalogue();
/// Device profiles, model/catalog/profiles/*.json by name.
const std::vector<EmbeddedFile>& embedded_profiles();

}  // namespace flopcast
