// What the page calls: a question as text in, its answer as text out, valid until the next one.
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
