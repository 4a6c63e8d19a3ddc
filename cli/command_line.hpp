#pragma once

#include "base/host/command_line.hpp"
