// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// TestWire: what is written by hand is what etcd's own definitions write.
func TestWire(t *testing.T) {
	create := get("/a/", true).number(3, 7)
	for name, tt := range map[string]struct {
		want proto.Message
		got  message
	}{
		"range": {&etcdserverpb.RangeRequest{Key: []byte("/a")}, get("/a", false)},
		"all":   {&etcdserverpb.RangeRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0")}, get("/a/", true)},
		"put":   {&etcdserverpb.PutRequest{Key: []byte("/a"), Value: []byte("v"), Lease: 9}, put("/a", []byte("v"), 9)},
		"watch": {&etcdserverpb.WatchCreateRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0"), StartRevision: 7}, create},
		"compare": {&etcdserverpb.Compare{
			Target: etcdserverpb.Compare_CREATE, Key: []byte("/a"), TargetUnion: &etcdserverpb.Compare_CreateRevision{},
		}, ifCreated("/a", 0)},
	} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(tt.want)
		if err != nil || !bytes.Equal(want, tt.got) {
			t.Errorf("%s: %x %v\nwant %x", name, tt.got, err, want)
		}
	}
}

// FuzzWire: no answer, however broken, does harm.
func FuzzWire(f *testing.F) {
	kv := &mvccpb.KeyValue{Key: []byte("/a"), Value: []byte("v"), CreateRevision: 3, Lease: 4}
	for _, m := range []proto.Message{
		&etcdserverpb.TxnResponse{
			Header: &etcdserverpb.ResponseHeader{Revision: 5}, Succeeded: true,
			Responses: []*etcdserverpb.ResponseOp{{
				Response: &etcdserverpb.ResponseOp_ResponseRange{
					ResponseRange: &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}},
				},
			}},
		},
		&etcdserverpb.WatchResponse{
			Canceled: true, CancelReason: "why", Events: []*mvccpb.Event{{Type: mvccpb.Event_DELETE, Kv: kv}},
		},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var r, one result
		var n watchResponse
		_, _, _ = r.readTxn(b), one.readRange(b), n.read(b)
	})
}
