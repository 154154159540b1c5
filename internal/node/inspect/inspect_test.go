// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// recorded is a ledger with these records and some unreadable ones.
type recorded struct {
	all []attach.Record
	err error
}

func (r recorded) List() ([]attach.Record, error) { return r.all, r.err }

// checking is a CHECK of all attachments.
type checking func(ctx context.Context) (model.CheckReport, error)

func (c checking) CheckAll(ctx context.Context) (model.CheckReport, error) { return c(ctx) }

// TestList: the list names the attachments by pod, and has the readable ones even if another one cannot be read.
func TestList(t *testing.T) {
	broken := errors.New("record of a newer version")
	began := time.Unix(1_800_000_000, 0)
	i := &Inspector{
		Records: recorded{[]attach.Record{
			{
				Stage: attach.Done, Serial: began.UnixNano(),
				Request: model.Request{
					Network: "weft", ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/c1",
					Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}},
				},
				Result: &model.Result{IPs: []model.IP{{Address: netip.MustParsePrefix("10.42.3.7/24")}}},
			},
			{
				Stage: attach.Pending, Serial: began.UnixNano(),
				Request: model.Request{Network: "lab", ContainerID: "c2", IfName: "net1"},
			},
		}, broken},
		Directory: func(r attach.Record) string {
			if r.Request.Network == "weft" {
				return "/var/lib/cni/networks/weft"
			}
			return ""
		},
	}
	got, err := i.List()
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(b, &list); err != nil || len(list) != 2 {
		t.Fatalf("%s: %v", b, err)
	}
	for key, want := range map[string]any{
		"network": "weft", "containerID": "c1", "ifName": "eth0", "stage": "done", "pod": "shop/web-0",
		"netns": "/run/netns/c1",
		"filed": "/var/lib/cni/networks/weft",
	} {
		if list[0][key] != want {
			t.Errorf("%s is %v, want %v", key, list[0][key], want)
		}
	}
	if since, err := time.Parse(time.RFC3339, list[0]["since"].(string)); err != nil || !since.Equal(began) {
		t.Errorf("since %v, %v, want %v", list[0]["since"], err, began)
	}
	if result, _ := json.Marshal(list[0]["result"]); !bytes.Contains(result, []byte("10.42.3.7/24")) {
		t.Errorf("result %s", result)
	}
	for _, key := range []string{"pod", "netns", "filed", "result"} {
		if v, ok := list[1][key]; ok {
			t.Errorf("an attachment of no pod, without a result, has the %s %v", key, v)
		}
	}
}

// TestEmptyList: the list of a node without attachments is empty JSON, not null.
func TestEmptyList(t *testing.T) {
	got, err := (&Inspector{Records: recorded{}}).List()
	if b, _ := json.Marshal(got); err != nil || string(b) != "[]" {
		t.Errorf("%s, %v", b, err)
	}
}

// TestCheckAllEnds: a CHECK that hangs is ended, and its findings until then are reported; unreadable records are
// logged.
func TestCheckAllEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		i := &Inspector{
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Attachments: checking(func(ctx context.Context) (model.CheckReport, error) {
				<-ctx.Done()
				return model.CheckReport{Attachments: 3, Unchecked: 2}, errors.New("record c9 is cut off")
			}),
		}
		begin := time.Now()
		if got := i.CheckAll(t.Context()); got.Attachments != 3 || got.Unchecked != 2 {
			t.Errorf("report %+v", got)
		}
		if took := time.Since(begin); took != checkAllTime {
			t.Errorf("ended after %v, want %v", took, checkAllTime)
		}
		if !strings.Contains(log.String(), "record c9 is cut off") {
			t.Errorf("log: %s", log.String())
		}
	})
}
