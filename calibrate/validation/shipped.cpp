#include "calibrate/validation/shipped.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace flopcast {

std::vector<PublishedFile> shipped_published() {
  std::vector<PublishedFile> files;
  for (const EmbeddedFile& file : embedded_published()) {
    const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
    const std::string source(name.substr(0, name.rfind('.')));
    files.push_back(read_published(nlohmann::json::parse(file.text), source, std::string(file.path)));
  }
  return files;
}

}  // namespace flopcast
