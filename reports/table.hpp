#pragma once

#include "base/text/table.hpp"
