// Shows that the core works in WebAssembly: an answer, an error thrown and caught, and one line of output that confirms
// it.
#include <cstdio>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/units/quantity.hpp"
#include "sim/schedules/catalogue.hpp"

namespace {

bool reads_quantities() {
  return flopcast::parse_quantity("80GiB", flopcast::Dimension::kBytes).value == 80.0 * 1024 * 1024 * 1024;
}

bool carries_the_catalogue() {
  return !flopcast::embedded_catalogue().empty();
}

bool generates_schedules() {
  flopcast::ScheduleRequest request;
  request.pipeline_ranks = 4;
  request.microbatches = 8;
  const flopcast::ScheduleInfo* info = flopcast::find_schedule("1f1b");
  return info != nullptr && flopcast::generate_schedule(*info, request).action_count() == 4 * 2 * 8;
}

bool throws_errors() {
  try {
    flopcast::parse_schedule_name("1f1c");
  } catch (const flopcast::ConfigError& error) {
    return error.diagnostic().field == "schedule";
  }
  return false;
}

}  // namespace

int main() {
  const bool ok = reads_quantities() && carries_the_catalogue() && generates_schedules() && throws_errors();
  std::puts(ok ? "OK" : "FAILED");
  return ok ? 0 : 1;
}
