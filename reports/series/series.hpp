#pragma once

#include "base/text/series.hpp"
