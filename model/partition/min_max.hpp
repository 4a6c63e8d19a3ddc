#pragma once

#include <vector>

namespace flopcast {

/// The contiguous split of `costs` into `parts` parts, at least one each, whose dearest part is as cheap as possible;
/// returns the sizes. Exact: Nicol's probing search (J. Parallel Distrib. Comput. 23, 1994) over the sums that occur,
/// O(n + p² log² n), where the recurrence over all last cuts takes O(n² p). Of equally good splits the one that fills
/// early parts first. torchgpipe's splitter (Bárány & Grinberg, 1308.2452) stops when parts differ by one cost and can
/// be worse. Sums are doubles: exact for whole numbers up to 2^53.
///
/// Throws ConfigError for no costs, costs that are negative or not finite, parts below one or more parts than costs.
std::vector<int> min_max_partition(const std::vector<double>& costs, int parts);

/// The cost of each part, in order.
std::vector<double> part_costs(const std::vector<double>& costs, const std::vector<int>& sizes);

}  // namespace flopcast
