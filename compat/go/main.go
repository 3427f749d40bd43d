// franz-go. README.md in the folder above says what is written and read.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	records    = 60
	partitions = 3
	group      = "go-group-"
	topic      = "go-none-one"
	step       = 5
)

var (
	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	modes = map[string][]kgo.Opt{
		"idempotent": {kgo.RequiredAcks(kgo.AllISRAcks())},
		"one":        {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"zero":       {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
	}
)

func key(i int) []byte {
	switch i % 5 {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return append([]byte("key-"+strconv.Itoa(i)), byte(i))
}

func value(i int) []byte {
	switch i % 7 {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	out := make([]byte, 37*i%2000+1)
	for j := range out {
		out[j] = byte(31*i + 7*j)
	}
	return out
}

func headers(i int, topic string) []kgo.RecordHeader {
	var missing []byte
	if strings.HasPrefix(topic, "node-") {
		missing = []byte{}
	}
	switch i % 4 {
	case 1:
		return []kgo.RecordHeader{{Key: "h", Value: []byte("v" + strconv.Itoa(i))}}
	case 2:
		return []kgo.RecordHeader{{Key: "dup", Value: missing}, {Key: "dup", Value: []byte{}}}
	case 3:
		return []kgo.RecordHeader{{Key: "bin", Value: []byte{0, 255, byte(i)}}}
	}
	return nil
}

func check(holds bool, format string, args ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		os.Exit(1)
	}
}

func must(err error) { check(err == nil, "%v", err) }

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	must(err)
	return made
}

func produce(ctx context.Context, bootstrap string, base int64) {
	admin := kadm.NewClient(client(bootstrap))
	defer admin.Close()
	for codec := range codecs {
		for mode := range modes {
			_, err := admin.CreateTopic(ctx, partitions, 1, nil, "go-"+codec+"-"+mode)
			must(err)
		}
	}
	for codec, compression := range codecs {
		for mode, options := range modes {
			write(ctx, bootstrap, base, "go-"+codec+"-"+mode, append([]kgo.Opt{
				kgo.ProducerBatchCompression(compression), kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ProducerLinger(5 * time.Millisecond),
			}, options...))
		}
	}
	fmt.Println("go: produced")
}

func write(ctx context.Context, bootstrap string, base int64, topic string, options []kgo.Opt) {
	cl := client(bootstrap, options...)
	defer cl.Close()
	var all []*kgo.Record
	for i := range records {
		all = append(all, &kgo.Record{
			Topic: topic, Partition: int32(i % partitions), Timestamp: time.UnixMilli(base + 1000*int64(i)),
			Key: key(i), Value: value(i), Headers: headers(i, topic),
		})
	}
	must(cl.ProduceSync(ctx, all...).FirstErr())
}

func verify(ctx context.Context, bootstrap string, base int64, writers []string) {
	assigned := map[string]map[int32]kgo.Offset{}
	for _, writer := range writers {
		for codec := range codecs {
			for mode := range modes {
				starts := map[int32]kgo.Offset{}
				for p := range int32(partitions) {
					starts[p] = kgo.NewOffset().AtStart()
				}
				assigned[writer+"-"+codec+"-"+mode] = starts
			}
		}
	}
	cl := client(bootstrap, kgo.ConsumePartitions(assigned))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	seen, wanted := 0, records*len(assigned)
	for seen < wanted {
		fetches := cl.PollFetches(ctx)
		check(ctx.Err() == nil, "%d of %d records in %d topics", seen, wanted, len(assigned))
		fetches.EachError(func(topic string, partition int32, err error) { check(false, "%s-%d: %v", topic, partition, err) })
		fetches.EachRecord(func(record *kgo.Record) {
			same(record, base)
			seen++
		})
	}
	admin := kadm.NewClient(cl)
	for topic := range assigned {
		ends, err := admin.ListEndOffsets(ctx, topic)
		must(err)
		ends.Each(func(end kadm.ListedOffset) {
			check(end.Offset == records/partitions, "%s-%d ends at %d", end.Topic, end.Partition, end.Offset)
		})
	}
	fmt.Printf("go: verified %d topics\n", len(assigned))
}

func same(record *kgo.Record, base int64) {
	i := int(record.Offset)*partitions + int(record.Partition)
	what := fmt.Sprintf("%s record %d", record.Topic, i)
	equal := func(got, expected []byte) bool {
		return (got == nil) == (expected == nil) && bytes.Equal(got, expected)
	}
	check(record.Timestamp.UnixMilli() == base+1000*int64(i), "%s timestamp", what)
	check(equal(record.Key, key(i)), "%s key", what)
	check(equal(record.Value, value(i)), "%s value", what)
	expected := headers(i, record.Topic)
	check(len(record.Headers) == len(expected), "%s headers", what)
	for h, header := range record.Headers {
		check(header.Key == expected[h].Key && equal(header.Value, expected[h].Value), "%s header %d", what, h)
	}
}

// A consumer in the group of this program: what it owns, and the first offset that it saw of each partition.
type member struct {
	cl    *kgo.Client
	mu    sync.Mutex
	owned map[int32]bool
	first map[int32]int64
}

func join(bootstrap, protocol string) *member {
	m := &member{owned: map[int32]bool{}, first: map[int32]int64{}}
	own := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range changed[topic] {
				delete(m.owned, p)
				if owns {
					m.owned[p] = true
				}
			}
		}
	}
	options := []kgo.Opt{kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond)}
	if protocol == "consumer" {
		options = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	}
	m.cl = client(bootstrap, append(options, kgo.ConsumerGroup(group+protocol), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.FetchMaxWait(50*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(own(true)), kgo.OnPartitionsRevoked(own(false)), kgo.OnPartitionsLost(own(false)))...)
	go func() {
		for {
			fetches := m.cl.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			m.mu.Lock()
			fetches.EachRecord(func(record *kgo.Record) {
				if _, seen := m.first[record.Partition]; !seen {
					m.first[record.Partition] = record.Offset
				}
			})
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *member) state() (owned map[int32]bool, first map[int32]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.owned), maps.Clone(m.first)
}

func (m *member) commit(ctx context.Context, offset int64) {
	owned, _ := m.state()
	offsets := map[int32]kgo.EpochOffset{}
	for p := range owned {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	var failed error
	m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			failed = err
			for _, t := range responseTopics(response) {
				for _, p := range t.Partitions {
					failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
	must(failed)
}

func responseTopics(response *kmsg.OffsetCommitResponse) []kmsg.OffsetCommitResponseTopic {
	if response == nil {
		return nil
	}
	return response.Topics
}

func until(holds func() bool, what string) {
	for end := time.Now().Add(40 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "%s", what)
	}
}

func hold(bootstrap string) {
	m := join(bootstrap, "classic")
	until(func() bool { owned, _ := m.state(); return len(owned) == partitions }, "no assignment")
	fmt.Println("holding")
	select {}
}

func turn(ctx context.Context, bootstrap string, number int64, protocol string) {
	a := join(bootstrap, protocol)
	until(func() bool { _, first := a.state(); return len(first) == partitions }, "the first member does not read all")
	_, first := a.state()
	for p, offset := range first {
		check(offset == step*number, "partition %d begins at %d", p, offset)
	}
	b := join(bootstrap, protocol)
	until(func() bool {
		of, _ := a.state()
		other, _ := b.state()
		shared := len(of) > 0 && len(other) > 0 && len(of)+len(other) == partitions
		maps.Copy(of, other)
		return shared && len(of) == partitions
	}, "the partitions are not shared")
	a.commit(ctx, step*(number+1))
	b.commit(ctx, step*(number+1))
	b.cl.Close()
	until(func() bool { owned, _ := a.state(); return len(owned) == partitions }, "the partitions of the other one do not come back")
	a.cl.Close()
	admin := kadm.NewClient(client(bootstrap))
	defer admin.Close()
	committed, err := admin.FetchOffsets(ctx, group+protocol)
	must(err)
	for p := range int32(partitions) {
		at, there := committed.Lookup(topic, p)
		check(there && at.At == step*(number+1), "committed %d of partition %d", at.At, p)
	}
	fmt.Printf("go: turn %d of the %s group\n", number, protocol)
}

func main() {
	ctx := context.Background()
	base, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	switch os.Args[1] {
	case "produce":
		produce(ctx, os.Args[2], base)
	case "hold":
		hold(os.Args[2])
	case "group":
		number, err := strconv.ParseInt(os.Args[4], 10, 64)
		must(err)
		turn(ctx, os.Args[2], number, os.Args[5])
	default:
		verify(ctx, os.Args[2], base, strings.Split(os.Args[4], ","))
	}
}
