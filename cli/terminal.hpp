#pragma once

#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
