#include "cli/exit_code.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr int kBug = 1;
constexpr int kAnswerIsNo = 3;

void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

}  // namespace

int exit_code_of(const std::function<int()>& command, bool tells) {
  try {
    return command();
  } catch (const ConfigError& error) {
    if (tells) complain(error.what());
    return kBadInput;
  } catch (const NegativeAnswer& answer) {
    complain(answer.what());
    return kAnswerIsNo;
  } catch (const EnvironmentError& error) {
    complain(fmt::format("error: {}", error.what()));
    return kEnvironmentFailed;
  } catch (const std::bad_alloc&) {
    complain("error: out of memory");
    return kEnvironmentFailed;
  } catch (const std::exception& error) {
    complain(
        fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.", error.what()));
    return kBug;
  }
}

}  // namespace flopcast
