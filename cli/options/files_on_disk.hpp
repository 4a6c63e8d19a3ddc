#pragma once

#include "import/programs/imported_job.hpp"

namespace flopcast {

/// The files of this machine, as jobs name them; YAML is read where flopcast was built with yaml-cpp.
const Files& files_on_disk();

}  // namespace flopcast
