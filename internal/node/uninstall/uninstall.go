// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/agentlock"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/preimage"
	"github.com/weft-net/weft/internal/state"
)

// Config configures a Node.
type Config struct {
	// Settings is the configuration of the node's agent.
	Settings config.Config
	// Boot is the host's boot ID, as the agent's process sees it.
	Boot  string
	Host  *kernel.Conn
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Node is a node that weft leaves.
type Node struct{ cfg Config }

// New returns a Node.
func New(cfg Config) *Node { return &Node{cfg} }

// Found is what weft has on the node, and what of it stays.
type Found struct {
	// Objects describe what is to be removed, one a line, in the order of the removal.
	Objects []string `json:"objects"`
	// Pods are the pods that run with a network of weft. Their interfaces stay, and what describes them.
	Pods []string `json:"pods"`
	// Kept are what else stays, and why.
	Kept []string `json:"kept,omitempty"`

	steps []step
}

// step removes one group of objects.
type step struct {
	what   []string
	remove func(ctx context.Context) error
}

func (f *Found) add(remove func(context.Context) error, what ...string) {
	if len(what) > 0 {
		f.steps = append(f.steps, step{what, remove})
		f.Objects = append(f.Objects, what...)
	}
}

// Find returns what Remove would remove. It may be called while an agent runs, whose attachments are then recognized by
// their links only.
func (n *Node) Find(ctx context.Context) (Found, error) { return n.find(ctx, nil) }

// ErrServed reports that an agent runs on the node.
var ErrServed = errors.New("an agent runs on this node")

// Remove removes everything but what running pods need, and returns what it found. After an error some of it is left;
// a further call continues.
func (n *Node) Remove(ctx context.Context) (Found, error) {
	s := n.cfg.Settings
	dir := s.StateDir
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // not made for the lock
		if dir, err = os.MkdirTemp("", "weft-uninstall-"); err != nil {
			return Found{}, fmt.Errorf("lock: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	lock, err := agentlock.Acquire(dir, n.cfg.Log, n.cfg.After)
	if err != nil {
		return Found{}, fmt.Errorf("%w: %w", ErrServed, err)
	}
	defer func() { _ = lock.Close() }()
	records, err := n.releaseEnded(ctx)
	if err != nil {
		return Found{}, err
	}
	if err := n.clearPolicies(ctx, records); err != nil {
		return Found{}, err
	}
	found, err := n.find(ctx, slices.DeleteFunc(records, ofOthers))
	if err != nil {
		return found, err
	}
	for _, s := range found.steps {
		if err := s.remove(ctx); err != nil {
			return found, err
		}
	}
	return found, nil
}

// clearPolicies removes the tables of policies, also in the pods that stay, and takes the quarantine from their links.
func (n *Node) clearPolicies(ctx context.Context, records []attach.Record) error {
	var all []model.WorkloadEndpoint
	for _, r := range records {
		if e, ok := r.Endpoint(); ok {
			all = append(all, e)
		}
	}
	if err := policy.Clear(ctx, n.cfg.Host, all...); err != nil {
		return fmt.Errorf("tables of policies: %w", err)
	}
	return nil
}

// find lists everything, in the order in which it is removed: first what makes the runtime start pods, last the files
// that a repetition needs.
func (n *Node) find(ctx context.Context, records []attach.Record) (Found, error) {
	found := Found{Objects: []string{}, Pods: pods(records)}
	all, err := n.cfg.Host.ReadAll(ctx)
	if err != nil {
		return found, err
	}
	stay := staying(all, records)
	if len(records) == 0 {
		for _, l := range stay.attached() {
			found.Pods = append(found.Pods, "interface "+l)
		}
	}
	other, err := install.OtherNetwork(n.installation())
	if err != nil {
		return found, err
	}
	return found, errors.Join(
		n.findInstalled(&found, other),
		n.findKernel(&found, all, stay),
		n.findSettings(ctx, &found, other),
		n.findFiles(&found),
	)
}

// findInstalled lists the runtime's configuration and programs. Without another network they stay for running pods.
func (n *Node) findInstalled(found *Found, other string) error {
	s, c := n.cfg.Settings.Install, n.installation()
	paths, err := install.List(c)
	if err != nil || len(paths) == 0 {
		return err
	}
	if len(found.Pods) > 0 && other == "" {
		for _, path := range paths {
			found.Kept = append(found.Kept, path+": the runtime stops pods by it, and no other network is configured")
		}
		asked, err := install.Asked(s.ConfDir)
		if err != nil {
			return err
		}
		for i, name := range asked {
			asked[i] = "versions with STATUS in " + filepath.Join(s.ConfDir, name)
		}
		found.add(func(ctx context.Context) error { return install.StopAsking(ctx, s.ConfDir) }, asked...)
		return nil
	}
	found.add(func(ctx context.Context) error { return install.RemoveAll(ctx, c) }, paths...)
	return nil
}

// installation returns where the runtime looks for CNI.
func (n *Node) installation() install.Config {
	return install.Config{BinDir: n.cfg.Settings.Install.BinDir, ConfDir: n.cfg.Settings.Install.ConfDir}
}

// findSettings lists the settings that weft has changed and that still have its value. Without weft they get their
// previous values, unless pods or another network need them.
func (n *Node) findSettings(ctx context.Context, found *Found, other string) error {
	before, err := preimage.Open(n.cfg.Settings.StateDir, n.cfg.Boot)
	if err != nil {
		found.Kept = append(found.Kept, err.Error())
		return nil
	}
	var network, others []state.Sysctl
	for name, value := range before.All() {
		s := state.Sysctl{Name: name, Value: value, IfPresent: true}
		if strings.HasPrefix(name, "net/netfilter/") { // what connection tracking counts: no pod needs it
			others = append(others, s)
		} else {
			network = append(network, s)
		}
	}
	needed := ""
	switch {
	case len(found.Pods) > 0:
		needed = "pods of the network need it"
	case other != "":
		needed = "the network of " + other + " may need it"
	}
	return errors.Join(n.findSysctls(ctx, found, network, needed), n.findSysctls(ctx, found, others, ""))
}

// findSysctls lists those settings that have another value than the wanted one. They are kept if they are needed.
func (n *Node) findSysctls(ctx context.Context, found *Found, want []state.Sysctl, needed string) error {
	slices.SortFunc(want, func(a, b state.Sysctl) int { return cmp.Compare(a.Name, b.Name) })
	f := state.Fragment{Owner: "settings", Host: state.Space{Sysctls: want}}
	spaces := kernel.Spaces{Host: n.cfg.Host}
	differ, err := spaces.Diff(ctx, f)
	if err != nil || len(differ) == 0 {
		return err
	}
	var lines []string
	for _, d := range differ {
		lines = append(lines, fmt.Sprintf("%s (now %s)", d.Want, d.Have))
	}
	if needed != "" {
		found.Kept = append(found.Kept, keptFor(lines, needed)...)
		return nil
	}
	found.add(func(ctx context.Context) error { return spaces.Restore(ctx, f) }, lines...)
	return nil
}

func keptFor(lines []string, why string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, l+": "+why)
	}
	return out
}

// Clean is the state of a node on which nothing of weft is left.
const Clean = "clean"

// waitingFor begins the state of a node with pods of the network.
const waitingFor = "waiting for pods: "

// Waiting is the state of a node on which these pods keep their network.
func Waiting(pods []string) string {
	const most = 5
	text := fmt.Sprintf("%s%d", waitingFor, len(pods))
	if len(pods) <= most {
		return text + " (" + strings.Join(pods, ", ") + ")"
	}
	return fmt.Sprintf("%s (%s and %d more)", text, strings.Join(pods[:most], ", "), len(pods)-most)
}
