#include "mezzo/process_group.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <cmath>

#include "parallel/agreement.h"
#include "parallel/averaging.h"
#include "parallel/group.h"
#include "parallel/same_lines.h"
#include "parallel/scratch.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_all_report;
using testing_ranks::Rank;
using testing_ranks::start;

at::Tensor ramp(std::int64_t size, at::ScalarType type) {
  return torch::arange(size, at::kDouble).remainder(17).add(1 + rank()).to(type);
}

const Rank kCollectives("collectives", [] {
  start();
  const int p = world_size();
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    for (const std::int64_t size : {0, 1, 7, 70001}) {
      at(std::string("sum of ") + c10::toString(type) + " x " + std::to_string(size));
      const at::Tensor sum = ramp(size, type);
      world().all_reduce(sum);
      at::Tensor expected = torch::zeros({size}, at::kDouble);
      for (int r = 0; r < p; ++r)
        expected += torch::arange(size, at::kDouble).remainder(17).add(1 + r);
      EXPECT_TRUE(torch::equal(sum.to(at::kDouble), expected)) << type << ' ' << size;
      const at::Tensor gathered = world().all_gather(ramp(size, type));
      EXPECT_EQ(gathered.size(0), p);
      EXPECT_TRUE(torch::equal(gathered[rank()], ramp(size, type)));
    }
  }
  const at::Tensor largest = torch::full({3}, rank(), at::kInt);
  world().all_reduce(largest, ReduceOp::kMax);
  EXPECT_EQ(largest[0].item<int>(), p - 1);
  const at::Tensor smallest = torch::full({3}, rank() + 5, at::kFloat);
  world().all_reduce(smallest, ReduceOp::kMin);
  EXPECT_EQ(smallest[1].item<float>(), 5);
  const at::Tensor from_last = torch::full({2, 2}, rank(), at::kBool);
  world().broadcast(from_last, p - 1);
  EXPECT_TRUE(from_last.all().item<bool>());
});

TEST(ProcessGroup, SumsGathersAndBroadcastsEveryTypeAndSize) {
  expect_all_pass("collectives", {.ranks = 2});
  expect_all_pass("collectives", {.ranks = 4});
}

const Rank kLowAverages("low averages", [] {
  start();
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor large = torch::full({70001}, 40000.0, type);
    world().all_reduce(large, ReduceOp::kAverage);
    EXPECT_TRUE(torch::equal(large, torch::full({70001}, 40000.0, type))) << type;

    // Several parts, the last one smaller.
    const at::Tensor larger = torch::arange(5'000'001).remainder(97).to(type) + rank();
    world().all_reduce(larger, ReduceOp::kAverage);
    const at::Tensor middle =
        torch::arange(5'000'001).remainder(97).to(at::kFloat) + (world_size() - 1) / 2.0;
    EXPECT_TRUE(torch::equal(larger, middle.to(type))) << type;

    torch::manual_seed(7);
    const at::Tensor all = torch::randn({world_size(), 100003}, at::kDouble).to(type);
    const at::Tensor mine = all[rank()].clone();
    world().all_reduce(mine, ReduceOp::kAverage);
    const at::Tensor exact = all.to(at::kDouble).mean(0).to(type);
    // One rounding of a float sum: the exact average's own neighbour at worst.
    const double ulp = type == at::kHalf ? 0x1p-10 : 0x1p-7;
    const at::Tensor error = (mine.to(at::kDouble) - exact.to(at::kDouble)).abs();
    EXPECT_TRUE((error <= ulp * exact.to(at::kDouble).abs()).all().item<bool>());
    const at::Tensor everybody = world().all_gather(mine);
    for (int r = 1; r < world_size(); ++r) {
      EXPECT_TRUE(torch::equal(everybody[r].view(at::kShort), everybody[0].view(at::kShort)));
    }
  }
});

TEST(ProcessGroup, AveragesLowTypesInFloatWithOneRounding) {
  expect_all_pass("low averages", {.ranks = 2});
  expect_all_pass("low averages", {.ranks = 5});
}

// Values with everything that could come out differently: large ones, infinities, NaNs.
at::Tensor difficult(std::int64_t size, at::ScalarType type) {
  torch::manual_seed(static_cast<std::uint64_t>(11 + rank()));
  at::Tensor values = torch::randn({size}, at::kDouble) * 100;
  if (size > rank()) values.slice(0, rank(), size, 37).fill_(30000);
  if (size > 5) values[5] = rank() == 0 ? 1e30 : 1;
  if (size > 6) values[6] = rank() == 1 ? std::nan("") : 1;
  return values.to(type);
}

const Rank kAverageWays("ways of averages", [] {
  start();
  Lane& lane = world().internals().calls();
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const std::int64_t size : {0, 1, 3, 7, 70001, 300'002, 4'200'001}) {
      const AverageScale scale =
          size == 70001 ? AverageScale{0.25, 1.5} : average_scale(world_size());
      const at::Tensor gathered = difficult(size, type);
      start_average_by(Wire::kGather, lane, gathered, scale)->wait();
      for (const Wire way : {Wire::kShards, Wire::kSwap}) {
        if (way == Wire::kSwap && world_size() != 2) continue;
        at(std::string(c10::toString(type)) + " x " + std::to_string(size) + " by way " +
           std::to_string(static_cast<int>(way)));
        const at::Tensor values = difficult(size, type);
        const at::Tensor second = values.clone();
        const auto version = values._version();
        // Two at once, whose second halves come after both first ones.
        const auto pending = start_average_by(way, lane, values, scale);
        const auto later = start_average_by(way, lane, second, scale);
        pending->advance();
        later->advance();
        pending->wait();
        later->wait();
        EXPECT_TRUE(torch::equal(values.view(at::kShort), gathered.view(at::kShort))) << size;
        EXPECT_TRUE(torch::equal(second.view(at::kShort), gathered.view(at::kShort))) << size;
        EXPECT_TRUE(size == 0 || values._version() > version);
        const at::Tensor everybody = world().all_gather(values);
        for (int r = 1; r < world_size(); ++r) {
          EXPECT_TRUE(torch::equal(everybody[r].view(at::kShort), everybody[0].view(at::kShort)));
        }
      }
    }
  }
});

TEST(Averaging, EveryWayGivesTheSameBits) {
  for (const int ranks : {2, 3, 4}) expect_all_pass("ways of averages", {.ranks = ranks});
}

const Rank kCheckedWays("checked ways", [] {
  InitOptions options;
  options.timeout = std::chrono::seconds(10);
  options.check_collectives = true;
  init_process_group(options);
  // Shards that are not all alike, and are no mismatch.
  const at::Tensor values = torch::full({1'000'001}, rank() + 1, at::kHalf);
  world().all_reduce(values, ReduceOp::kAverage);
  EXPECT_TRUE((values == (world_size() + 1) / 2.0).all().item<bool>());
  world().all_reduce(torch::ones({1'000'001 + rank()}, at::kHalf), ReduceOp::kAverage);
});

TEST(Averaging, IsComparedBetweenRanksLikeEveryCall) {
  expect_all_report("checked ways", "calls all_to_all with 10000", {.ranks = 2});
  expect_all_report("checked ways", "calls all_to_all with 10000", {.ranks = 3});
}

TEST(Averaging, TravelsAsFewBytesAsItCan) {
  constexpr std::int64_t kMany = 10'000'000;
  EXPECT_EQ(choose_wire({.low_type = false, .size = 2, .elements = 10}), Wire::kDirect);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 1, .elements = kMany}), Wire::kDirect);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 2, .elements = kMany}), Wire::kSwap);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 2, .elements = kMany, .on_cpu = false}),
            Wire::kGather);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 4, .elements = 1000}), Wire::kGather);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 4, .elements = kMany}), Wire::kShards);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 4, .elements = kMany, .on_cpu = false}),
            Wire::kFloat);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 8, .elements = 10}), Wire::kFloat);
  EXPECT_EQ(choose_wire({.low_type = true, .size = 2, .elements = 10, .always_float = true}),
            Wire::kFloat);
}

TEST(Averaging, SharesTheElementsEvenly) {
  using testing::ElementsAre;
  EXPECT_THAT(shards_of(0, 2), ElementsAre(0, 0));
  EXPECT_THAT(shards_of(3, 4), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(shards_of(11, 4), ElementsAre(3, 3, 3, 2));
}

TEST(Averaging, GathersManyElementsInEqualParts) {
  EXPECT_EQ(gather_part(0, true), 1);
  EXPECT_EQ(gather_part(1'000'000, true), 1'000'000);
  EXPECT_EQ(gather_part(7'000'001, true), 1'750'001);
  EXPECT_EQ(gather_part(7'000'001, false), 7'000'001);
}

TEST(Scratch, IsTheSameMemoryAtTheNextStep) {
  const void* first = nullptr;
  {
    const Scratch borrowed({3, 1000}, torch::dtype(at::kHalf));
    EXPECT_EQ(borrowed.tensor().sizes(), (at::IntArrayRef{3, 1000}));
    first = borrowed.tensor().const_data_ptr();
    const Scratch another({3, 1000}, torch::dtype(at::kHalf));
    EXPECT_NE(another.tensor().const_data_ptr(), first);
  }
  {
    const Scratch smaller({2, 1000}, torch::dtype(at::kBFloat16));
    const Scratch rest({2900}, torch::dtype(at::kHalf));
    EXPECT_TRUE(smaller.tensor().const_data_ptr() == first ||
                rest.tensor().const_data_ptr() == first);
    const Scratch much_smaller({10}, torch::dtype(at::kHalf));
    EXPECT_EQ(much_smaller.tensor().numel(), 10);
    const Scratch empty({2, 0}, torch::dtype(at::kHalf));
    EXPECT_EQ(empty.tensor().numel(), 0);
  }
  release_scratch();
}

const Rank kViews("views", [] {
  start();
  const at::Tensor whole = torch::ones({4, 6}, at::kFloat);
  const at::Tensor view = whole.slice(1, 0, 6, 2);
  world().all_reduce(view);
  for (int column = 0; column < 6; ++column) {
    EXPECT_TRUE(
        (whole.select(1, column) == (column % 2 == 0 ? world_size() : 1)).all().item<bool>());
  }
  world().broadcast(whole.t(), 0);
});

TEST(ProcessGroup, NeverTouchesTheNeighboursOfAView) {
  expect_all_pass("views");
}

const Rank kGroups("groups", [] {
  start();
  const ProcessGroup even = new_group({0, 2});
  const ProcessGroup odd = new_group({3, 1});
  const ProcessGroup& mine = rank() % 2 == 0 ? even : odd;
  const ProcessGroup& other = rank() % 2 == 0 ? odd : even;
  EXPECT_EQ(mine.size(), 2);
  EXPECT_EQ(mine.ranks()[static_cast<std::size_t>(mine.rank())], rank());
  EXPECT_FALSE(other.is_member());
  EXPECT_THROW(other.barrier(), Error);
  const at::Tensor sum = torch::full({1}, rank());
  mine.all_reduce(sum);
  EXPECT_EQ(sum.item<float>(), rank() % 2 == 0 ? 2 : 4);
  EXPECT_THROW(new_group({}), ConfigError);
  EXPECT_THROW(new_group({0, 0}), ConfigError);
  EXPECT_THROW(new_group({4}), ConfigError);
  const at::Tensor flag = agree_max(torch::full({1}, rank() == 1 ? 1.0F : 0.0F), world());
  EXPECT_EQ(flag.item<float>(), 1);
  EXPECT_EQ(agree_max(torch::zeros({1}, at::kInt), mine).item<int>(), 0);
});

TEST(ProcessGroup, SubgroupsKeepToThemselves) {
  expect_all_pass("groups", {.ranks = 4});
}

const Rank kTwice("twice", [] {
  start();
  EXPECT_THROW(init_process_group(), Error);
  const ProcessGroup old = world();
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
  EXPECT_THROW(old.barrier(), Error);
  EXPECT_THROW(rank(), Error);
  start();
  barrier();
  EXPECT_EQ(world().counts().collectives, 2);
  destroy_process_group();
  destroy_process_group();
});

TEST(ProcessGroup, CanBeLeftAndJoinedAgain) {
  expect_all_pass("twice");
}

const Rank kLines("lines", [] {
  start();
  Lane& lane = world().internals().calls();
  check_same_lines(lane, {"a", "b"}, "here");
  std::vector<std::string> lines{
      "same", rank() == 1 ? "conv.weight Float [8, 3]" : "conv.weight Float [8, 4]", "c"};
  try {
    check_same_lines(lane, lines, "here");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(
        e.what(),
        HasSubstr(
            "rank 0 has 'conv.weight Float [8, 4]' where rank 1 has 'conv.weight Float [8, 3]'"));
  }
  try {
    check_same_lines(
        lane, rank() == 0 ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "more"},
        "here");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("'nothing more' where rank 1 has 'more'"));
  }
  barrier();
});

TEST(SameLines, NamesTheFirstDifferenceOnEveryRank) {
  expect_all_pass("lines", {.ranks = 3});
}

const Rank kChecked("checked", [] {
  InitOptions options;
  options.timeout = std::chrono::seconds(10);
  options.check_collectives = true;
  init_process_group(options);
  world().all_reduce(torch::ones({3}));
  world().all_reduce(torch::ones({rank() == 0 ? 1000 : 2000}));
});

TEST(ProcessGroup, ComparesCallsBeforeTheTransportSeesThem) {
  expect_all_report("checked", "ranks differ in call");
}

TEST(ProcessGroup, AWorldOfOneNeedsNobody) {
  InitOptions options;
  options.init_method = "tcp://127.0.0.1:1";
  options.rank = 0;
  options.world_size = 1;
  init_process_group(options);
  EXPECT_EQ(rank(), 0);
  EXPECT_EQ(world_size(), 1);
  const at::Tensor value = torch::full({2}, 3.0);
  world().all_reduce(value, ReduceOp::kAverage);
  EXPECT_EQ(value[0].item<float>(), 3);
  EXPECT_EQ(world().all_gather(value).size(0), 1);
  EXPECT_FALSE(world_if_any().has_value());
  destroy_process_group();
}

TEST(ProcessGroup, RefusesImpossibleOptions) {
  const auto says = [](const InitOptions& options) {
    try {
      init_process_group(options);
      return std::string("nothing was thrown");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  InitOptions options;
  options.backend = "mpi";
  EXPECT_THAT(says(options), HasSubstr("auto, gloo, nccl"));
  options = {};
  EXPECT_THAT(says(options), HasSubstr("mezzo launch"));
  options.init_method = "tcp://127.0.0.1:1234";
  EXPECT_THAT(says(options), HasSubstr("needs rank and world_size"));
  options.rank = 2;
  options.world_size = 2;
  EXPECT_THAT(says(options), HasSubstr("out of range"));
  options = {};
  options.timeout = std::chrono::milliseconds(0);
  EXPECT_THAT(says(options), HasSubstr("more than 0"));
  EXPECT_THROW(rank(), Error);
  EXPECT_THROW(barrier(), Error);
}

const Rank kFile("file", [] {
  const char* path = std::getenv("MEETING_FILE");
  InitOptions options;
  options.init_method = std::string("file://") + path;
  options.rank = std::stoi(std::getenv("RANK"));
  options.world_size = 2;
  options.timeout = std::chrono::seconds(15);
  init_process_group(options);
  barrier();
});

TEST(ProcessGroup, MeetsAtASharedFile) {
  const std::string path = testing::TempDir() + "mezzo_meeting_file_" + std::to_string(getpid());
  std::filesystem::remove(path);
  expect_all_pass("file", {.environment = {{"MEETING_FILE", path}}});
  std::filesystem::remove(path);
}

TEST(ProcessGroup, UnderstandsOpenMpisVariables) {
  // The launcher gives RANK too, which the ranks take away; all it needs beside is the address.
  expect_all_pass("mpi by hand");
}

const Rank kMpiByHand("mpi by hand", [] {
  setenv("OMPI_COMM_WORLD_RANK", std::getenv("RANK"), 1);
  setenv("OMPI_COMM_WORLD_SIZE", std::getenv("WORLD_SIZE"), 1);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  start();
  barrier();
});

}  // namespace
}  // namespace mezzo::parallel
