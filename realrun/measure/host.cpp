#include "realrun/measure/host.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string>

#include "realrun/measure/product.hpp"

namespace flopcast {

namespace {

std::string processor_name() {
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace

Measurement describe_host() {
  Measurement about;
  about.device = processor_name();
  about.date = today();
  utsname system{};
  if (uname(&system) == 0) {
    about.host = system.nodename;
    about.libraries[system.sysname] = system.release;
  }
  about.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  about.libraries[product_library().name] = product_library().version;
  return about;
}

}  // namespace flopcast
