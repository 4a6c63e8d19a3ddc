#pragma once

#include <vector>

#include "calibrate/validation/refit.hpp"
#include "reports/table.hpp"

namespace flopcast {

/// The constants as shipped and as refitted, then the errors by source.
std::vector<Table> refit_tables(const std::vector<Refit>& fits);

}  // namespace flopcast
