// What goes wrong with the members of a cluster and the connections to them.
#include "sim/faults.hpp"

namespace sallyport::sim {

bool fault_maker::strike_cluster(fault which, process& victim) {
  switch (which) {
    case fault::reset:
      members_->reset_some(victim.number());
      return true;
    case fault::cut_to_store:
      members_->cut_some(victim.number(), true, false);
      return true;
    case fault::cut_from_store:
      members_->cut_some(victim.number(), false, true);
      return true;
    case fault::partition:
      members_->cut_some(victim.number(), true, true);
      return true;
    case fault::store_pause:
      members_->pause_some();
      return true;
    case fault::store_restart:
      members_->restart_some();
      return true;
    case fault::isolation:
      members_->isolate_some();
      return true;
    case fault::election:
      members_->change_leader();
      return true;
    case fault::watch_cancel:
      if (etcd_ != nullptr) etcd_->cancel_some_watch();
      return true;
    case fault::full_store:
      if (etcd_ != nullptr) etcd_->fill_up();
      return true;
    default:
      return false;
  }
}

}  // namespace sallyport::sim
