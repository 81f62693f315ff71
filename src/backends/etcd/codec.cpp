#include "backends/etcd/codec.hpp"

#include <etcd.pb.h>
#include <utility>

namespace sallyport::backends::etcd::codec {
namespace {

namespace wire = sallyport::etcd::wire;

template <class Message>
std::string bytes_of(const Message& message) {
  return message.SerializeAsString();
}

template <class Message>
std::optional<Message> parse(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) return std::nullopt;
  return message;
}

void write(const condition& from, wire::Compare& to) {
  to.set_result(from.greater ? wire::Compare::GREATER : wire::Compare::EQUAL);
  to.set_key(from.key);
  if (!from.end.empty()) to.set_range_end(from.end);
  switch (from.what) {
    case condition::field::created:
      to.set_target(wire::Compare::CREATE);
      to.set_create_revision(from.number);
      break;
    case condition::field::modified:
      to.set_target(wire::Compare::MOD);
      to.set_mod_revision(from.number);
      break;
    case condition::field::lease:
      to.set_target(wire::Compare::LEASE);
      to.set_lease(from.number);
      break;
  }
}

void write(const look_up& from, wire::RangeRequest& to) {
  to.set_key(from.key);
  if (!from.end.empty()) to.set_range_end(from.end);
  to.set_limit(from.limit);
  to.set_keys_only(from.keys_only);
  if (from.created_at_most != 0) to.set_max_create_revision(from.created_at_most);
  if (from.youngest_first) {
    to.set_sort_order(wire::RangeRequest::DESCEND);
    to.set_sort_target(wire::RangeRequest::CREATE);
  }
}

void write(const operation& from, wire::RequestOp& to) {
  if (const auto* const putting = std::get_if<put>(&from)) {
    wire::RequestOp* where = &to;
    if (putting->only_new) {
      wire::TxnRequest& inner = *to.mutable_request_txn();
      write(condition{.what = condition::field::created, .key = putting->key},
            *inner.add_compare());
      where = inner.add_success();
    }
    wire::PutRequest& request = *where->mutable_request_put();
    request.set_key(putting->key);
    request.set_value(putting->value);
    request.set_lease(putting->lease);
  } else if (const auto* const erasing = std::get_if<erase>(&from)) {
    to.mutable_request_delete_range()->set_key(erasing->key);
  } else if (const auto* const looking = std::get_if<look_up>(&from)) {
    write(*looking, *to.mutable_request_range());
  }
}

key_value read(const wire::KeyValue& from) {
  return {.key = from.key(),
          .value = from.value(),
          .created = from.create_revision(),
          .modified = from.mod_revision(),
          .lease = from.lease()};
}

operation_answer read(const wire::RangeResponse& from) {
  operation_answer out{.found = {}, .more = from.more()};
  for (const wire::KeyValue& found : from.kvs()) out.found.push_back(read(found));
  return out;
}

}  // namespace

std::string txn_request(const txn& what) {
  wire::TxnRequest request;
  for (const condition& each : what.when) write(each, *request.add_compare());
  for (const operation& each : what.then) write(each, *request.add_success());
  for (const operation& each : what.otherwise) write(each, *request.add_failure());
  return bytes_of(request);
}

std::optional<txn_answer> read_txn(const std::string& bytes) {
  const auto said = parse<wire::TxnResponse>(bytes);
  if (!said) return std::nullopt;
  txn_answer out{.succeeded = said->succeeded(),
                 .at = said->header().revision(),
                 .term = said->header().raft_term(),
                 .answers = {}};
  for (const wire::ResponseOp& each : said->responses()) {
    operation_answer& answer = out.answers.emplace_back();
    if (each.has_response_range()) answer = read(each.response_range());
  }
  return out;
}

std::string range_request(const look_up& what) {
  wire::RangeRequest request;
  write(what, request);
  return bytes_of(request);
}

std::optional<operation_answer> read_range(const std::string& bytes) {
  const auto said = parse<wire::RangeResponse>(bytes);
  if (!said) return std::nullopt;
  return read(*said);
}

std::string grant_request(lease_id lease, std::int64_t seconds) {
  wire::LeaseGrantRequest request;
  request.set_id(lease);
  request.set_ttl(seconds);
  return bytes_of(request);
}

std::optional<std::int64_t> read_grant(const std::string& bytes) {
  const auto said = parse<wire::LeaseGrantResponse>(bytes);
  if (!said || said->ttl() <= 0) return std::nullopt;
  return said->ttl();
}

std::string revoke_request(lease_id lease) {
  wire::LeaseRevokeRequest request;
  request.set_id(lease);
  return bytes_of(request);
}

std::string time_to_live_request(lease_id lease) {
  wire::LeaseTimeToLiveRequest request;
  request.set_id(lease);
  return bytes_of(request);
}

std::optional<time_to_live> read_time_to_live(const std::string& bytes) {
  const auto said = parse<wire::LeaseTimeToLiveResponse>(bytes);
  if (!said) return std::nullopt;
  return time_to_live{said->ttl(), said->grantedttl()};
}

std::string keep_alive_request(lease_id lease) {
  wire::LeaseKeepAliveRequest request;
  request.set_id(lease);
  return bytes_of(request);
}

std::optional<kept_alive> read_keep_alive(const std::string& bytes) {
  const auto said = parse<wire::LeaseKeepAliveResponse>(bytes);
  if (!said) return std::nullopt;
  return kept_alive{said->id(), said->ttl(), said->header().raft_term()};
}

std::string watch_request(watch_number watch, const std::string& key, const std::string& end,
                          bool puts) {
  wire::WatchRequest request;
  wire::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_watch_id(watch);
  create.set_key(key);
  if (!end.empty()) create.set_range_end(end);
  if (!puts) create.add_filters(wire::WatchCreateRequest::NOPUT);
  return bytes_of(request);
}

std::string unwatch_request(watch_number watch) {
  wire::WatchRequest request;
  request.mutable_cancel_request()->set_watch_id(watch);
  return bytes_of(request);
}

std::optional<watch_report> read_watch(const std::string& bytes) {
  const auto said = parse<wire::WatchResponse>(bytes);
  if (!said) return std::nullopt;
  watch_report out{.watch = said->watch_id(),
                   .at = said->header().revision(),
                   .created = said->created(),
                   .ended = said->canceled() || said->compact_revision() != 0,
                   .why = said->cancel_reason(),
                   .events = {}};
  for (const wire::Event& each : said->events()) {
    out.events.push_back({each.type() == wire::Event::DELETE, read(each.kv())});
  }
  return out;
}

std::string authenticate_request(const std::string& user, const std::string& password) {
  wire::AuthenticateRequest request;
  request.set_name(user);
  request.set_password(password);
  return bytes_of(request);
}

std::optional<std::string> read_authenticate(const std::string& bytes) {
  const auto said = parse<wire::AuthenticateResponse>(bytes);
  if (!said || said->token().empty()) return std::nullopt;
  return said->token();
}

}  // namespace sallyport::backends::etcd::codec
