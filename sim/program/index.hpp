#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace flopcast {

/// The number of a rank, a stage, a chunk, a microbatch: `Kind` tells them apart. It reads as an int, but none is taken
/// for another.
template <class Kind>
class Index {
 public:
  constexpr Index() = default;
  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  constexpr explicit Index(Number number) : number_(static_cast<int>(number)) {}

  constexpr operator int() const { return number_; }  // NOLINT(google-explicit-constructor)
  // fmt 10 prints what converts to a number only where it is told so.
  friend constexpr int format_as(Index index) { return index.number_; }

 private:
  int number_ = 0;
};

/// What a list by `Kind` takes: an index of that kind, or a plain number.
template <class Place, class Kind>
concept PlaceOf = std::is_integral_v<Place> || std::is_same_v<Place, Index<Kind>>;

/// A value by index: a vector that takes indices of its own kind or plain numbers, signed ones too, and none of another
/// kind.
template <class Kind, class Value>
class IndexedVector : public std::vector<Value> {
 public:
  using std::vector<Value>::vector;
  IndexedVector() = default;
  IndexedVector(std::vector<Value> values)  // NOLINT(google-explicit-constructor)
      : std::vector<Value>(std::move(values)) {}

  template <PlaceOf<Kind> Place>
  decltype(auto) operator[](Place place) {
    return std::vector<Value>::operator[](static_cast<std::size_t>(place));
  }
  template <PlaceOf<Kind> Place>
  decltype(auto) operator[](Place place) const {
    return std::vector<Value>::operator[](static_cast<std::size_t>(place));
  }
};

struct RankKind;
struct StageKind;
struct ChainKind;
struct ChunkKind;
struct MicrobatchKind;
using RankIndex = Index<RankKind>;
using StageIndex = Index<StageKind>;
using ChunkIndex = Index<ChunkKind>;            ///< of a rank's stages
using MicrobatchIndex = Index<MicrobatchKind>;  ///< or the slice of one, where a schedule cuts them
template <class Value>
using ByRank = IndexedVector<RankKind, Value>;
template <class Value>
using ByChain = IndexedVector<ChainKind, Value>;
template <class Value>
using ByStage = IndexedVector<StageKind, Value>;

}  // namespace flopcast
