// Two machines, as far as one can be two: `mezzo launch` runs twice, with a node's rank each and
// one address.
#include <gmock/gmock.h>

#include <csignal>
#include <thread>

#include "parallel/branches.h"
#include "parallel/several.h"
#include "platform/libraries.h"
#include "platform/network.h"
#include "platform/process.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_equal;
using testing_ranks::gradients_of;
using testing_ranks::kMeeting;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;
using testing_ranks::start_at_once;
using namespace std::chrono_literals;

int free_port() {
  int port = 0;
  platform::close_descriptor(platform::listen_at("127.0.0.1", port));
  return port;
}

// A launcher of two ranks that runs by itself.
class Node {
  using Variables = std::map<std::string, std::string>;

 public:
  Node(int rank, int port, const std::string& work, const std::string& meeting = "")
      : process_({MEZZO_PROGRAM, "launch", "--nnodes", "2", "--node-rank", std::to_string(rank),
                  "--master-addr", "127.0.0.1", "--master-port", std::to_string(port),
                  "--nproc-per-node", "2", "--time-limit", "120", "--",
                  platform::program_path().string(), "--rank-work", work},
                 meeting.empty() ? Variables{{"OMP_NUM_THREADS", "1"}}
                                 : Variables{{"OMP_NUM_THREADS", "1"}, {kMeeting, meeting}}) {}

  bool ended() {
    read();
    if (!end_) end_ = process_.end();
    return end_.has_value();
  }
  void wait() {
    while (!ended()) platform::wait_readable({process_.pipe(0), process_.pipe(1)}, 50ms);
    read();
  }
  void send(int signal) { process_.send(signal); }
  int code() const { return end_->shell_code(); }
  const std::string& text() const { return text_; }

 private:
  void read() {
    for (int which : {0, 1}) process_.read(which, text_);
  }
  platform::Process process_;
  std::optional<platform::ProcessEnd> end_;
  std::string text_;
};

// Both nodes' work, the second one started so much later than the first.
struct Nodes {
  Nodes(const std::string& work, int first, std::chrono::milliseconds later) {
    const int port = free_port();
    // Unless it is the order of their starts that counts.
    const testing_ranks::Meeting meeting;
    const std::string place = later == 0ms ? meeting.path() : "";
    std::optional<Node> of[2];
    of[first].emplace(first, port, work, place);
    std::this_thread::sleep_for(later);
    of[1 - first].emplace(1 - first, port, work, place);
    while (!of[0]->ended() || !of[1]->ended()) std::this_thread::sleep_for(10ms);
    for (int node : {0, 1}) {
      of[node]->wait();
      codes[node] = of[node]->code();
      texts[node] = of[node]->text();
    }
  }
  int codes[2] = {};
  std::string texts[2];
};

const Rank kTrain("two nodes train", [] {
  start();
  EXPECT_EQ(world_size(), 4);
  EXPECT_EQ(local_rank(), rank() % 2);
  EXPECT_EQ(*platform::environment_variable("GROUP_RANK"), std::to_string(rank() / 2));
  Branches single = net_of(1);
  Branches net = net_of(static_cast<unsigned>(1 + rank()));
  DistributedDataParallel ddp(net, {.message_size = 40});
  const at::Tensor all = batch_of(3, 4 * world_size());
  loss_of(single->forward(all)).backward();
  loss_of(ddp(own_rows(all))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "two nodes");
  at("done");
});

TEST(Nodes, TrainTogetherWhicheverStartsFirst) {
  for (const int first : {0, 1}) {
    const Nodes nodes("two nodes train", first, 700ms);
    for (const int node : {0, 1}) {
      EXPECT_EQ(nodes.codes[node], 0) << nodes.texts[node];
      for (const int local : {0, 1}) {
        const std::string name = "[rank " + std::to_string(2 * node + local) + "] ";
        EXPECT_THAT(nodes.texts[node], HasSubstr(name + "at: done\n"));
      }
      EXPECT_THAT(nodes.texts[node], Not(HasSubstr("[rank " + std::to_string(2 - 2 * node))));
    }
  }
}

const Rank kLate("two nodes, one goes on", [] {
  start();
  barrier();
  // A rank that is no member leaves at once; the others meet in the store of a node that has ended.
  if (rank() >= 2) std::this_thread::sleep_for(1500ms);
  const ProcessGroup later = new_group({2, 3});
  if (rank() < 2) return;
  const at::Tensor one = torch::ones({1});
  later.all_reduce(one);
  EXPECT_EQ(one.item<float>(), 2);
  destroy_process_group();
  at("done");
});

TEST(Nodes, TheFirstOneStaysAsLongAsOthersMayNeedItsStore) {
  const Nodes nodes("two nodes, one goes on", 0, 0ms);
  for (const int node : {0, 1}) EXPECT_EQ(nodes.codes[node], 0) << nodes.texts[node];
  EXPECT_THAT(nodes.texts[1], HasSubstr("[rank 2] at: done\n"));
  EXPECT_THAT(nodes.texts[1], HasSubstr("[rank 3] at: done\n"));
}

// One rank is gone between two collectives.
void fail(int who, bool killed) {
  start(10s);
  barrier();
  at("together");
  if (rank() == who) {
    if (killed) std::raise(SIGKILL);
    throw std::runtime_error("a mistake of one rank");
  }
  for (int i = 0; i < 100; ++i) world().all_reduce(torch::ones({100000}));
}

const Rank kFirstThrows("node 0 throws", [] { fail(1, false); });
const Rank kSecondThrows("node 1 throws", [] { fail(3, false); });
const Rank kFirstDies("node 0 dies", [] { fail(1, true); });
const Rank kSecondDies("node 1 dies", [] { fail(3, true); });

TEST(Nodes, AFailureOnOneIsReportedByBoth) {
  for (const int node : {0, 1}) {
    for (const bool killed : {true, false}) {
      const std::string work = "node " + std::to_string(node) + (killed ? " dies" : " throws");
      const std::string rank = std::to_string(node == 0 ? 1 : 3);
      const Nodes nodes(work, 0, 0ms);
      EXPECT_EQ(nodes.codes[node], killed ? 128 + SIGKILL : 1) << nodes.texts[node];
      EXPECT_THAT(nodes.texts[node], HasSubstr("[launch] rank " + rank + " (process "));
      EXPECT_EQ(nodes.codes[1 - node], 1) << nodes.texts[1 - node];
      EXPECT_THAT(nodes.texts[1 - node], HasSubstr("failed on rank "));
      EXPECT_THAT(nodes.texts[1 - node], HasSubstr("ranks that did not report: " + rank));
    }
  }
}

const Rank kAlone("a node without the other", [] { start_at_once(6s); });

TEST(Nodes, OneThatIsMissingIsNamed) {
  const int port = free_port();
  Node first(0, port, "a node without the other");
  first.wait();
  EXPECT_EQ(first.code(), 1);
  EXPECT_THAT(first.text(), HasSubstr("ranks that did not come: 2, 3"));
  Node second(1, port, "a node without the other");
  second.wait();
  EXPECT_EQ(second.code(), 1);
  EXPECT_THAT(second.text(), HasSubstr("nobody answers at the master address 127.0.0.1:"));
}

}  // namespace
}  // namespace mezzo::parallel
