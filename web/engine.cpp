// Entry point for the page: takes a question as text and returns its answer as text, valid until the next call.
#include <emscripten/emscripten.h>

#include <string>

#include "web/questions.hpp"

extern "C" {

EMSCRIPTEN_KEEPALIVE const char* flopcast_answer(const char* question) {
  static std::string text;
  text = flopcast::answer(question);
  return text.c_str();
}
}
