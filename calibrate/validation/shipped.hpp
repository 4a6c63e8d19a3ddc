#pragma once

#include <vector>

#include "calibrate/validation/published_row.hpp"
#include "model/catalog/embedded.hpp"

namespace flopcast {

/// calibrate/validation/published/*.json, compiled in.
const std::vector<EmbeddedFile>& embedded_published();

/// The published measurements that come with the program.
std::vector<PublishedFile> shipped_published();

}  // namespace flopcast
