#include "api/options/job_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr int kMostSamples = 1'000'000;

// The whole text as a non-negative number.
std::optional<double> number_in(const std::string& text) {
  const bool plain = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  const std::optional<double> value = plain ? parse_number(text) : std::nullopt;
  return value && *value >= 0.0 ? value : std::nullopt;
}

// "3%" or "0.03".
std::optional<double> share_in(const std::string& text) {
  constexpr double kPercent = 0.01;
  if (text.empty() || text.back() != '%') return number_in(text);
  std::size_t digits = text.size() - 1;
  while (digits > 0 && text[digits - 1] == ' ') --digits;
  const std::optional<double> number = number_in(text.substr(0, digits));
  if (!number) return std::nullopt;
  return *number * kPercent;
}

double jitter_of(const std::string& text) {
  const std::optional<double> jitter = share_in(text);
  if (jitter && *jitter <= 1.0) return *jitter;
  throw ConfigError({"--jitter", fmt::format("\"{}\" is not a fraction from 0 to 100 %", text), "",
                     "give the standard deviation of a pass's time, such as 3% or 0.03"});
}

std::optional<int> whole_number_in(const std::string& text) {
  return parse_digits(text, 0, std::numeric_limits<int>::max());
}

Straggler straggler_of(const std::string& text) {
  const auto refuse = [&text](const std::string& problem) {
    return ConfigError({"--straggler", fmt::format("\"{}\" {}", text, problem), "",
                        "give DEVICE:FACTOR such as 3:1.2, or PROBABILITY:FACTOR such as 0.1%:1.5"});
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw refuse("has no factor");
  const std::string who = text.substr(0, colon);
  const std::optional<double> factor = number_in(text.substr(colon + 1));
  constexpr double kMostSlow = 1'000.0;
  if (!factor || !(*factor >= 1.0) || *factor > kMostSlow) throw refuse("needs a factor from 1 to 1000");
  Straggler straggler;
  straggler.factor = *factor;
  if (!who.empty() && who.back() == '%') {
    const std::optional<double> probability = share_in(who);
    if (!probability || *probability > 1.0) throw refuse("needs a probability from 0 to 100 %");
    straggler.probability = *probability;
    return straggler;
  }
  straggler.device = whole_number_in(who);
  if (!straggler.device) throw refuse("names neither a device nor a probability in percent");
  return straggler;
}

// "2048" or "2048*3"; returns false for anything else.
bool append_lengths(const std::string& word, std::vector<int>& lengths) {
  constexpr int kMostAlike = 1'000'000;
  const std::size_t star = std::min(word.find('*'), word.size());
  const std::optional<int> length = whole_number_in(word.substr(0, star));
  const std::optional<int> count = star == word.size() ? 1 : whole_number_in(word.substr(star + 1));
  if (!length || *length < 1 || !count || *count < 1 || *count > kMostAlike) return false;
  lengths.insert(lengths.end(), static_cast<std::size_t>(*count), *length);
  return true;
}

// Low-discrepancy points between 0 and 1 (van der Corput): every prefix covers the interval evenly.
double spread(std::size_t index) {
  double place = 0.0;
  double share = 0.5;
  for (std::size_t rest = index + 1; rest > 0; rest /= 2) {
    place += share * static_cast<double>(rest % 2);
    share /= 2.0;
  }
  return place;
}

// "lognormal:MEDIAN:SIGMA" or "uniform:LOW:HIGH"; nullopt for anything else, which is the name of a file.
std::optional<std::vector<int>> lengths_of_distribution(const std::string& text, int longest) {
  constexpr std::size_t kDrawn = 4096;
  const bool lognormal = text.starts_with("lognormal:");
  if (!lognormal && !text.starts_with("uniform:")) return std::nullopt;
  const std::size_t first = text.find(':') + 1;
  const std::size_t colon = text.find(':', first);
  const auto low = number_in(text.substr(first, colon == std::string::npos ? colon : colon - first));
  const auto high = colon == std::string::npos ? std::nullopt : number_in(text.substr(colon + 1));
  constexpr double kMostSigma = 10.0;
  if (!low || !high || *low < 1.0 || (lognormal ? *high > kMostSigma : *high < *low)) {
    throw ConfigError(
        {"--sequence-lengths", fmt::format("\"{}\" is not a distribution of lengths", text), "",
         "give lognormal:MEDIAN:SIGMA (lognormal:400:0.8), uniform:LOW:HIGH (uniform:64:2048) or a file"});
  }
  std::vector<int> lengths;
  lengths.reserve(kDrawn);
  for (std::size_t index = 0; index < kDrawn; ++index) {
    const double place = spread(index);
    const double length = lognormal ? *low * std::exp(*high * normal_quantile(place)) : *low + place * (*high - *low);
    lengths.push_back(static_cast<int>(std::clamp(std::round(length), 1.0, static_cast<double>(longest))));
  }
  return lengths;
}

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, seed);
  if (problem == std::errc() && stop == end) return seed;
  throw ConfigError({"--seed", fmt::format("\"{}\" is not a whole number from 0 to 2^64 - 1", text), "", ""});
}

}  // namespace

void VariationOptions::add_to(Form& form) {
  form.begin_group("Variation");
  form.add_option("--jitter", jitter_, "SHARE",
                  "random variation of passes, such as 3%: distribution of the step time");
  form.add_option("--straggler", stragglers_, "WHO:FACTOR",
                  "slower device: rank 3:1.2, or at random 0.1%:1.5; repeatable");
  form.add_option("--samples", samples_, "N", "number of sampled steps (default 1000)");
  form.add_option("--seed", seed_, "S", "seed of the samples (default 1)");
  add_lengths_to(form);
}

void VariationOptions::add_lengths_to(Form& form) {
  form.add_option("--sequence-lengths", lengths_, "FILE",
                  "lengths of the samples: cost of padding, and the step time when packed; 512 2048*3 …, "
                  "or lognormal:MEDIAN:SIGMA, uniform:LOW:HIGH");
}

std::optional<Variation> VariationOptions::variation() const {
  if (!jitter_ && stragglers_.empty()) {
    if (!samples_ && !seed_) return std::nullopt;
    throw ConfigError(
        {samples_ ? "--samples" : "--seed", "has nothing to sample", "", "add --jitter 3% or --straggler 0.1%:1.5"});
  }
  Variation variation;
  if (jitter_) variation.jitter = jitter_of(*jitter_);
  for (const std::string& straggler : stragglers_) variation.stragglers.push_back(straggler_of(straggler));
  if (seed_) variation.seed = seed_of(*seed_);
  variation.samples = samples_.value_or(variation.samples);
  if (variation.samples < 1 || variation.samples > kMostSamples) {
    throw ConfigError(
        {"--samples", fmt::format("{} is not between 1 and {}", variation.samples, kMostSamples), "", ""});
  }
  return variation;
}

std::optional<std::vector<int>> VariationOptions::sequence_lengths(int longest) const {
  if (!lengths_) return std::nullopt;
  if (auto drawn = lengths_of_distribution(*lengths_, longest)) return drawn;
  std::string text = read_file(*lengths_);
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  std::vector<int> lengths;
  for (std::string word; words >> word;) {
    if (append_lengths(word, lengths)) continue;
    throw ConfigError({"--sequence-lengths", fmt::format("\"{}\" is not a length", word), *lengths_,
                       "give whole numbers, repeated ones as LENGTH*COUNT: 512 2048*3"});
  }
  return lengths;
}

}  // namespace flopcast
