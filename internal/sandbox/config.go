// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/pod"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Config is what a Server is made from.
type Config struct {
	StateDir string
	ConfDir  string
	BinDirs  []string
	CacheDir string
	LogDir   string
	// PodsDir is a directory of manifests that is followed; empty for none.
	PodsDir  string
	Node     string
	PodCIDRs []netip.Prefix
	// ClusterDNS and Domain are for pods whose dnsPolicy is ClusterFirst.
	ClusterDNS []string
	Domain     string
	// Args are the command line's flags, remembered for whoever starts the next runtime of the directory.
	Args []string
	// UntilIdle ends the server when its last pod is gone.
	UntilIdle bool
	// Self is the program to start again for pause and containers, with its leading arguments.
	Self []string
	Log  *slog.Logger
	Now  func() time.Time
	Step func(name string) // a hook for fault tests; nil is fine

	Times Times
}

// Times are the periods of the kubelet's half.
type Times struct {
	Relist     time.Duration // between two looks at what runs
	Ill        time.Duration // how old the last look may be
	BackOff    time.Duration // before the second restart of a container
	BackOffCap time.Duration
	// BackOffReset is how long a container must have run for its back-off to be forgotten.
	BackOffReset time.Duration
	Retry        time.Duration // before a sandbox is tried again; doubles up to RetryCap
	RetryCap     time.Duration
	Housekeeping time.Duration
}

// KubeletTimes are the kubelet's.
func KubeletTimes() Times {
	return Times{
		Relist: time.Second, Ill: 3 * time.Minute,
		BackOff: 10 * time.Second, BackOffCap: 5 * time.Minute, BackOffReset: 10 * time.Minute,
		Retry: time.Second, RetryCap: 10 * time.Second, Housekeeping: 2 * time.Second,
	}
}

// Socket is where the server of a state directory listens.
func Socket(stateDir string) string { return filepath.Join(stateDir, "sandbox.sock") }

// Orphans tells whether pods are left in a state directory that no runtime serves, and the flags of the last one.
func Orphans(stateDir string) (args []string, some bool) {
	for _, dir := range []string{"pods", "sandboxes", "checkpoints", "netns"} {
		entries, _ := os.ReadDir(filepath.Join(stateDir, dir))
		some = some || len(entries) > 0
	}
	if process.ReadJSON(filepath.Join(stateDir, argsFile), &args) != nil {
		return nil, false // no runtime was ever here
	}
	return args, some
}

const argsFile = "args.json"

func (c Config) node() pod.Node {
	resolv, _ := os.ReadFile("/etc/resolv.conf") // none: pods get none
	return pod.Node{
		Name: c.Node, LogDir: c.LogDir, PodCIDRs: c.PodCIDRs, ClusterDNS: c.ClusterDNS, Domain: c.Domain, ResolvConf: resolv,
	}
}

// check refuses a state directory that cannot be used or is something else.
func (c Config) check() error {
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return unwritable(c.StateDir, err)
	}
	entries, err := os.ReadDir(c.StateDir)
	if err != nil {
		return unwritable(c.StateDir, err)
	}
	ours := len(entries) == 0
	for _, e := range entries {
		if e.Name() == "lock" || e.Name() == "serve.log" {
			ours = true
		}
	}
	if !ours {
		return model.Faultf(model.CodeInvalidConf, "name an empty or a new directory with --state-dir",
			"state directory %s holds something else (%s)", c.StateDir, entries[0].Name())
	}
	probe, err := os.CreateTemp(c.StateDir, ".probe")
	if err != nil {
		return unwritable(c.StateDir, err)
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

func unwritable(dir string, err error) error {
	return model.Faultf(model.CodeIO, "name another one with --state-dir, or run as root",
		"state directory %s is not writable: %w", dir, err)
}
