#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flopcast::realrun {

/// Which rectangle of a whole matrix is held here. A vector is a matrix of one row.
struct Shard {
  std::size_t whole_rows = 1;
  std::size_t whole_columns = 0;
  std::size_t first_row = 0;
  std::size_t rows = 1;
  std::size_t first_column = 0;
  std::size_t columns = 0;

  std::size_t count() const { return rows * columns; }
};
Shard whole_matrix(std::size_t rows, std::size_t columns);
/// Part `index` of `parts` equal ones.
Shard rows_of(std::size_t rows, std::size_t columns, int index, int parts);
Shard columns_of(std::size_t rows, std::size_t columns, int index, int parts);

/// One tensor among the weights of a stage.
struct Parameter {
  std::string name;        ///< "block.3.mlp.up.weight": the same on whatever stage it lies
  Shard shard;             ///< of the whole parameter, when tensor-parallel ranks share it
  float value = 0;         ///< initial value where `deviation` is 0
  float deviation = 0;     ///< standard deviation of the initial values (uniform)
  bool partial = false;    ///< tensor-parallel ranks hold it whole, but each computes only a part of its gradient
  std::size_t offset = 0;  ///< of its first element in the unit's flat buffers
};

/// The weights of a unit lie one behind the other in one flat buffer, and so do gradients and optimizer states: any
/// strategy that cuts or merges them works on ranges of elements.
class ParameterList {
 public:
  /// Every parameter starts at a multiple of `alignment` elements, and so does what follows the last: any run of
  /// parameters is cut into that many equal parts. What fills the gaps stays zero.
  explicit ParameterList(std::size_t alignment = 1) : alignment_(alignment) {}
  /// Sets and returns the offset.
  std::size_t add(Parameter parameter);
  std::size_t size() const { return size_; }  ///< elements, gaps included
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  std::vector<Parameter> parameters_;
  std::size_t size_ = 0;
  std::size_t alignment_ = 1;
};

/// Initial values depend on the seed, the parameter's name and the element's place in the whole parameter, so every
/// partition starts from the same weights.
template <class T>
void initialise(const ParameterList& list, std::uint64_t seed, T* weights);

/// A well mixed 64-bit hash (splitmix64, Steele et al. 2014); the one source of chance here.
std::uint64_t mix(std::uint64_t value);

}  // namespace flopcast::realrun
