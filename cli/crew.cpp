#include "cli/crew.hpp"

#include <limits>

#include "planner/sweep/division.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

class Answer {
 public:
  Answer(const SharedWork& work, PartialRows& rows) : work_(work), rows_(rows) { look_for_end(); }

  // The first row that ends the work bounds what is needed.
  void look_for_end() {
    last_ = work_.parts;
    if (!work_.ends) return;
    for (const auto& [index, row] : rows_.rows()) {
      if (index < last_ && work_.ends(row)) last_ = index + 1;
    }
  }
  bool needs(std::size_t part) const { return part < last_ && rows_.rows().count(part) == 0; }

  std::vector<Json> take() const {
    std::vector<Json> all;
    for (std::size_t part = 0; part < last_; ++part) all.push_back(rows_.rows().at(part));
    return all;
  }

 private:
  const SharedWork& work_;
  PartialRows& rows_;
  std::size_t last_ = 0;
};

}  // namespace

std::optional<std::vector<Json>> answer_together(const SharedWork& work, PartialRows& rows, const Crew& crew,
                                                 const ParallelFor& parallel_for, std::size_t threads) {
  rows.load(crew.leads());
  rows.keep(work.is_row);
  // Nobody may write before everybody has read: what is missing has to be the same for all.
  crew.meet();
  rows.open();
  Answer answer(work, rows);
  std::vector<std::size_t> missing;
  for (std::size_t part = 0; part < work.parts; ++part) {
    if (answer.needs(part)) missing.push_back(part);
  }
  Division division(missing, crew.rank, crew.size);
  const std::size_t own_bite = work.ends ? threads : std::numeric_limits<std::size_t>::max();
  if (work.begins) work.begins(missing.size());
  while (division.left()) {
    const bool own = division.own_left();
    if (crew.shares && (work.ends || !own)) {
      if (rows.is_gone()) return std::nullopt;
      rows.refresh();
      answer.look_for_end();
    }
    const std::vector<std::size_t> parts =
        division.next(own ? own_bite : threads, [&](std::size_t part) { return answer.needs(part); });
    parallel_for(parts.size(), [&](std::size_t place) { rows.append(parts[place], work.compute(parts[place])); });
    answer.look_for_end();
  }
  if (crew.shares && !rows.claim()) return std::nullopt;
  return answer.take();
}

}  // namespace flopcast
