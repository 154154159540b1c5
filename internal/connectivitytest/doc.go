// SPDX-License-Identifier: Apache-2.0

// Package connectivitytest tests a cluster's network with real packets between pods of its own: in namespaces of its own,
// with weft's image only, and without any other host. It is the same for a lab and for Kubernetes: pods and policies are
// objects of the datastore, and probes are commands that are executed in the pods (package probe).
//
// # Terms
//
//   - Test: what one category tests, such as "mtu". Tests run at the same time.
//   - Check: a probe from one pod to one destination, and whether an answer is expected. What should pass is tried again
//     for a while; what should not pass is tried again, too, until it does not, and then a second time.
package connectivitytest

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
)

// Cluster is the cluster that is tested.
type Cluster interface {
	Objects() store.Objects
	// Nodes returns the nodes whose agents answer.
	Nodes(ctx context.Context) ([]string, error)
	// Exec executes weft in a pod of the test and returns its standard output.
	Exec(ctx context.Context, namespace, pod string, args ...string) ([]byte, error)
	// Program is the path of weft in pods, and Image the image that has it.
	Program() string
	Image() string
	// Lab: pods start without a kubelet and there is no proxy of Services.
	Lab() bool
	// ReplaceAgent replaces the agent of a node, and returns when the new one is ready.
	ReplaceAgent(ctx context.Context, node string) error
	// RunsVMs returns why VMs of the test cannot run in a lab; nil: they can.
	RunsVMs(ctx context.Context) error
	// Migrate live-migrates a VM (namespace/name) of a lab to a node during a connection.
	Migrate(ctx context.Context, vm, node string) (Migration, error)
	// Findings returns what is wrong with the cluster.
	Findings(ctx context.Context) ([]string, error)
	// Diagnose says why a connection fails: what weft explain and weft trace find.
	Diagnose(ctx context.Context, q Question) []string
}

// Migration is what a connection to a VM had during its live migration.
type Migration struct {
	// Resets are failures of the connection and lost lines; Pause is the longest time without a line, of one each 10 ms.
	Resets int
	Pause  time.Duration
}

// Question names a connection between pods (namespace/name), nodes, or addresses. Without a port it is ICMP.
type Question struct {
	From, To string
	Protocol model.Protocol
	Port     uint16
	IPv6     bool
	// Size of the packet in bytes, with its IP header; 0: any.
	Size int
}

// Options choose what is tested.
type Options struct {
	Only       []string // names of tests; empty: all
	External   string   // host:port outside of the cluster, empty: none
	Disruptive bool     // replace an agent, migrate a VM
	VMs        bool     // test the VMs that run
	BootVMs    bool     // boot VMs, and test them
	VMImage    string   // the image of the guest of VMs in Kubernetes
	// Rounds is the number of sets of random policies, and Seed the number of the first, 0: a random one. The same numbers
	// have the same policies.
	Rounds int
	Seed   uint64
	// Wait is how long what should pass is tried again.
	Wait time.Duration
	Logf func(format string, args ...any)
}

// Row is the result of a check.
type Row struct {
	Name     string       `json:"name"`
	OK       bool         `json:"ok"`
	Error    string       `json:"error,omitempty"`
	Attempts int          `json:"attempts"`
	Result   probe.Result `json:"result"`
	// Diagnosis is what explain and trace found of a failed check.
	Diagnosis []string `json:"diagnosis,omitempty"`
}

// TestResult is the result of a test.
type TestResult struct {
	Name string `json:"name"`
	// Skipped is why the test, or a part of it, was not run.
	Skipped []string `json:"skipped,omitempty"`
	// Error is why the test ended early.
	Error  string `json:"error,omitempty"`
	Rows   []Row  `json:"rows"`
	Millis int64  `json:"millis"`
}

// Failed returns the number of failed checks; a test that ended early counts as one more.
func (t TestResult) Failed() int {
	n := 0
	for _, r := range t.Rows {
		if !r.OK {
			n++
		}
	}
	if t.Error != "" {
		n++
	}
	return n
}

// Report is the result of a run.
type Report struct {
	Namespace string       `json:"namespace"`
	Nodes     []string     `json:"nodes"`
	Tests     []TestResult `json:"tests"`
	Millis    int64        `json:"millis"`
}

// OK reports whether something was checked and nothing failed.
func (r Report) OK() bool {
	checked := 0
	for _, t := range r.Tests {
		if t.Failed() > 0 {
			return false
		}
		checked += len(t.Rows)
	}
	return checked > 0
}
