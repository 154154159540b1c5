// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// order is a request of the test to the agent's process.
type order struct {
	Verb, ID, Netns, Conf string
	BinDir                string
	At                    int // the step at which to fail
	How                   string
}

// reply is the response to an order.
type reply struct {
	Err    string
	Code   int    // of the CNI error
	Hint   string // the hint
	IPs    []string
	Steps  int // so far, including the work after the response
	Report string
}

// agentProcess is the part of an agent under test: package attach with a ledger and garbage collection.
func agentProcess(dir string) int {
	err := serveOrders(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

func serveOrders(dir string) error {
	host, err := kernel.Dial(nil)
	if err != nil {
		return err
	}
	records, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	reaper := kernel.NewReaper(host, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = reaper.Run(ctx) }()
	steps := &stepper{}
	a := attach.New(attach.Config{
		Records: records, Host: host, Planners: plugin.Builtin(), Reaper: reaper, Now: time.Now, Boot: "this boot",
		Allocators: map[string]ipam.Allocator{"host-local": hostlocal.New(hostlocal.Config{CallerKnows: true})},
		Exec:       &foreign.Runner{Env: os.Environ()}, Failpoint: steps.step, Linger: time.Millisecond,
	})
	report, err := a.Recover(ctx)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(reply{Report: report.String(), Err: errorText(errors.Join(report.Problems...))}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		steps.reset(o.How, o.At)
		r := executeOrder(ctx, a, o)
		if o.How == "count" {
			if err := a.Drain(ctx); err != nil {
				return err
			}
			r.Steps = steps.count()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return errors.Join(a.Drain(ctx), records.Close())
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func executeOrder(ctx context.Context, a *attach.Attacher, o order) reply {
	job, err := makeJob(o)
	if err != nil {
		return reply{Err: err.Error()}
	}
	if job.Netns != nil {
		defer func() { _ = job.Netns.Close() }()
	}
	var r reply
	switch o.Verb {
	case "ADD":
		var result model.Result
		result, err = a.Add(ctx, job)
		for _, ip := range result.IPs {
			r.IPs = append(r.IPs, ip.Address.String())
		}
	case "DEL":
		err = a.Del(ctx, job)
	case "CHECK":
		err = a.Check(ctx, job)
	case "GC":
		err = a.GC(ctx, job, nil)
	}
	r.Err = errorText(err)
	var fault *model.Error
	if errors.As(err, &fault) {
		r.Code, r.Hint = int(fault.Code), fault.Hint
	}
	return r
}

func makeJob(o order) (attach.Job, error) {
	n, err := cni.ParseNetwork([]byte(o.Conf))
	if err != nil {
		return attach.Job{}, err
	}
	if n, err = cni.Derive(n, nil, nil); err != nil {
		return attach.Job{}, err
	}
	job := attach.Job{Network: n, Request: model.Request{
		Network: n.Name, CNIVersion: n.CNIVersion, ContainerID: o.ID, IfName: "eth0", Netns: o.Netns,
		CNIPath: filepath.SplitList(o.BinDir),
	}}
	if ns, err := netns.Open(o.Netns); err == nil {
		job.Netns = ns
	}
	return job, nil
}
