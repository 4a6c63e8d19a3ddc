#pragma once

#include "base/host/processes.hpp"
