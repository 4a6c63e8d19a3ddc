#pragma once

#include "base/text/error.hpp"
