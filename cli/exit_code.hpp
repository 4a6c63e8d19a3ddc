#pragma once

#include "base/host/exit_code.hpp"
