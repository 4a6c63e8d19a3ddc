#pragma once

#include "base/host/terminal.hpp"
