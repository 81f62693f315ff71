// Go's clientv3/concurrency, told what to do over its standard input: one command a line, one answer a line.
//
//	go_peer ENDPOINT TTL_SECONDS
//
//	lock NAME           -> locked KEY REVISION         (waits)
//	unlock              -> unlocked
//	campaign NAME VALUE -> leads KEY REVISION          (waits)
//	resign              -> resigned
//	leader NAME         -> leader VALUE | leader       (without a value: nobody leads)
//	observe NAME VALUE  -> observed VALUE              (waits until it has seen that)
//	count NAME FILE N   -> counted LAST_REVISION       (N times: lock, add one to the number in FILE)
//	write GATE KEY VALUE LOCK REVISION -> passed | stale | wrong_lock    (behind a fencing gate)
//	txn HEX             -> succeeded BOOL...           (sends a TxnRequest; its own, and those within)
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
)

type peer struct {
	client   *clientv3.Client
	session  *concurrency.Session
	mutex    *concurrency.Mutex
	election *concurrency.Election
}

func (p *peer) lock(name string) (string, error) {
	p.mutex = concurrency.NewMutex(p.session, name)
	if err := p.mutex.Lock(context.Background()); err != nil {
		return "", err
	}
	return fmt.Sprintf("locked %s %d", p.mutex.Key(), p.mutex.Header().Revision), nil
}

func (p *peer) campaign(name, value string) (string, error) {
	p.election = concurrency.NewElection(p.session, name)
	if err := p.election.Campaign(context.Background(), value); err != nil {
		return "", err
	}
	return fmt.Sprintf("leads %s %d", p.election.Key(), p.election.Header().Revision), nil
}

func (p *peer) leader(name string) (string, error) {
	found, err := concurrency.NewElection(p.session, name).Leader(context.Background())
	if err == concurrency.ErrElectionNoLeader {
		return "leader", nil
	}
	if err != nil {
		return "", err
	}
	return "leader " + string(found.Kvs[0].Value), nil
}

func (p *peer) observe(name, value string) (string, error) {
	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	for said := range concurrency.NewElection(p.session, name).Observe(stopping) {
		if string(said.Kvs[0].Value) == value {
			return "observed " + value, nil
		}
	}
	return "", fmt.Errorf("the observation of %s has ended", name)
}

func note(file string, number int64) error {
	opened, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(opened, number); err != nil {
		return err
	}
	return opened.Close()
}

// Loses updates unless the lock keeps everybody else out.
func (p *peer) count(name, file string, turns int) (string, error) {
	var last int64
	for turn := 0; turn < turns; turn++ {
		if _, err := p.lock(name); err != nil {
			return "", err
		}
		last = p.mutex.Header().Revision
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return "", err
		}
		time.Sleep(2 * time.Millisecond) // room for somebody else
		if err := os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o600); err != nil {
			return "", err
		}
		if err := note(file+".tokens", last); err != nil {
			return "", err
		}
		if err := p.mutex.Unlock(context.Background()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("counted %d", last), nil
}

// fencedPut writes key under an exclusive token, in one transaction with the numbers of a Sallyport gate.
// docs/fencing.md shows it.
func fencedPut(client *clientv3.Client, gate, lock string, token int64, key, value string) (string, error) {
	number := fmt.Sprintf("%020d", token)
	newest := clientv3.OpPut(gate+"/exclusive", number)
	write := clientv3.OpPut(key, value)
	first := clientv3.OpTxn([]clientv3.Cmp{
		clientv3.Compare(clientv3.Version(gate+"/lock"), "=", 0),
		clientv3.Compare(clientv3.Version(gate+"/exclusive"), "=", 0),
		clientv3.Compare(clientv3.Version(gate+"/shared"), "=", 0),
	}, []clientv3.Op{
		clientv3.OpPut(gate+"/lock", lock), newest, clientv3.OpPut(gate+"/shared", fmt.Sprintf("%020d", 0)), write,
	}, []clientv3.Op{
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(gate+"/lock"), "=", lock)}, nil, nil),
	})
	said, err := client.Txn(context.Background()).If(
		clientv3.Compare(clientv3.Value(gate+"/lock"), "=", lock),
		clientv3.Compare(clientv3.Value(gate+"/exclusive"), "<", number+"\x00"), // not larger
		clientv3.Compare(clientv3.Value(gate+"/shared"), "<", number),
	).Then(newest, write).Else(first).Commit()
	if err != nil {
		return "", err
	}
	if said.Succeeded {
		return "passed", nil
	}
	inner := said.Responses[0].GetResponseTxn()
	if inner.Succeeded {
		return "passed", nil
	}
	if inner.Responses[0].GetResponseTxn().Succeeded {
		return "stale", nil
	}
	return "wrong_lock", nil
}

func flags(said *pb.TxnResponse, to string) string {
	to += fmt.Sprintf(" %v", said.Succeeded)
	for _, each := range said.Responses {
		if inner := each.GetResponseTxn(); inner != nil {
			to = flags(inner, to)
		}
	}
	return to
}

// The bytes are read by etcd's own code, and sent as they are.
func (p *peer) txn(text string) (string, error) {
	bytes, err := hex.DecodeString(text)
	if err != nil {
		return "", err
	}
	request := &pb.TxnRequest{}
	if err := request.Unmarshal(bytes); err != nil {
		return "", err
	}
	said, err := pb.NewKVClient(p.client.ActiveConnection()).Txn(context.Background(), request)
	if err != nil {
		return "", err
	}
	return flags(said, "succeeded"), nil
}

func (p *peer) obey(words []string) (string, error) {
	switch {
	case len(words) == 2 && words[0] == "lock":
		return p.lock(words[1])
	case len(words) == 1 && words[0] == "unlock":
		return "unlocked", p.mutex.Unlock(context.Background())
	case len(words) == 3 && words[0] == "campaign":
		return p.campaign(words[1], words[2])
	case len(words) == 1 && words[0] == "resign":
		return "resigned", p.election.Resign(context.Background())
	case len(words) == 2 && words[0] == "leader":
		return p.leader(words[1])
	case len(words) == 3 && words[0] == "observe":
		return p.observe(words[1], words[2])
	case len(words) == 4 && words[0] == "count":
		turns, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return p.count(words[1], words[2], turns)
	case len(words) == 2 && words[0] == "txn":
		return p.txn(words[1])
	case len(words) == 6 && words[0] == "write":
		token, err := strconv.ParseInt(words[5], 10, 64)
		if err != nil {
			return "", err
		}
		return fencedPut(p.client, words[1], words[4], token, words[2], words[3])
	}
	return "", fmt.Errorf("not understood: %q", words)
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: go_peer ENDPOINT TTL_SECONDS")
	}
	ttl, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer session.Close()
	one := &peer{client: client, session: session}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := one.obey(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
