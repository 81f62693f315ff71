// Turns with the Mutex of Go's clientv3/concurrency, for the benchmark; the conversation is described in README.md.
//
// Every contender has a session of its own, as its documentation asks for, with a lease of 30 s; all of a process share
// one client. The lock is on BENCH_ETCD, the conversation on the Redis server.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

// redis says one command and reads its answer: as much of the protocol as the conversation needs.
type redis struct {
	to   net.Conn
	from *bufio.Reader
}

func (r *redis) ask(words ...string) []string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, each := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(each), each)
	}
	_, err := io.WriteString(r.to, text)
	check(err)
	return r.answer()
}

func (r *redis) answer() []string {
	line, err := r.from.ReadString('\n')
	check(err)
	line = strings.TrimSpace(line)
	switch line[0] {
	case ':', '+':
		return []string{line[1:]}
	case '$':
		length, err := strconv.Atoi(line[1:])
		check(err)
		bytes := make([]byte, length+2)
		_, err = io.ReadFull(r.from, bytes)
		check(err)
		return []string{string(bytes[:length])}
	case '*':
		count, err := strconv.Atoi(line[1:])
		check(err)
		var all []string
		for i := 0; i < count; i++ {
			all = append(all, r.answer()...)
		}
		return all
	}
	log.Fatal("Error: redis says " + line)
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal("Error: ", err)
	}
}

// now is CLOCK_MONOTONIC, which Go does not tell.
func now() int64 {
	var at syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	if failed != 0 {
		log.Fatal("Error: ", failed)
	}
	return at.Nano()
}

func takeTurns(lock *concurrency.Mutex, seat int, hold time.Duration, begin, end int64) string {
	var turns strings.Builder
	time.Sleep(time.Duration(begin - now()))
	for {
		wanted := now()
		if wanted >= end {
			return turns.String()
		}
		check(lock.Lock(context.Background()))
		entered := now()
		if hold > 0 {
			time.Sleep(hold)
		}
		released := now()
		check(lock.Unlock(context.Background()))
		fmt.Fprintln(&turns, seat, wanted, entered, released, 0)
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--trial" {
		return
	}
	var numbers [4]int
	for i := range numbers {
		number, err := strconv.Atoi(os.Args[1+i])
		check(err)
		numbers[i] = number
	}
	port, process, seats, hold := numbers[0], numbers[1], numbers[2], time.Duration(numbers[3])*time.Microsecond

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("BENCH_ETCD")}, DialTimeout: 10 * time.Second})
	check(err)
	sessions := make([]*concurrency.Session, seats)
	for i := range sessions {
		sessions[i], err = concurrency.NewSession(client, concurrency.WithTTL(30))
		check(err)
	}
	warm := concurrency.NewMutex(sessions[0], fmt.Sprintf("bench/warm/%d", process))
	check(warm.Lock(context.Background()))
	check(warm.Unlock(context.Background()))

	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	check(err)
	server := &redis{connection, bufio.NewReader(connection)}
	server.ask("INCR", "bench/ready")
	var begin, end int64
	_, err = fmt.Sscan(server.ask("BLPOP", "bench/go", "0")[1], &begin, &end)
	check(err)

	all := make([]string, seats)
	var done sync.WaitGroup
	for i := range all {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			all[i] = takeTurns(concurrency.NewMutex(sessions[i], "bench/lock"), process*seats+i, hold, begin, end)
		}(i)
	}
	done.Wait()
	server.ask("RPUSH", "bench/turns", strings.Join(all, ""))
	for _, each := range sessions {
		check(each.Close())
	}
}
