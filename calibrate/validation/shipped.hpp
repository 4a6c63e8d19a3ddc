#pragma once

#include <vector>

#include "calibrate/validation/published_row.hpp"
#include "model/catalog/embedded.hpp"

namespace flopcast {

/// calibrate/validation/published/*.json, compiled in.
const std::vector<EmbeddedFile>& embedded_published();

/// calibrate/validation/fits.json: which constants are fitted to which sources.
const std::vector<EmbeddedFile>& embedded_fits();

/// calibrate/validation/residuals.json: stored_refits().
const std::vector<EmbeddedFile>& embedded_residuals();

/// The published measurements that come with the program.
std::vector<PublishedFile> shipped_published();

}  // namespace flopcast
