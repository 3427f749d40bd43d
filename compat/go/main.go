// franz-go. README.md in the folder above says what is written and read.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records    = 60
	partitions = 3
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

func main() {
	ctx := context.Background()
	base, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	if os.Args[1] == "produce" {
		produce(ctx, os.Args[2], base)
	} else {
		verify(ctx, os.Args[2], base, strings.Split(os.Args[4], ","))
	}
}
