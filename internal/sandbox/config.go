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

// Config configures a Server.
type Config struct {
	StateDir string
	ConfDir  string
	BinDirs  []string
	CacheDir string
	LogDir   string
	// PodsDir is a directory of manifests of static pods, which the server watches; empty for none.
	PodsDir  string
	Node     string
	PodCIDRs []netip.Prefix
	// ClusterDNS and Domain are for pods whose dnsPolicy is ClusterFirst.
	ClusterDNS []string
	Domain     string
	// Args are the flags of the command line, stored for the next runtime of the state directory.
	Args []string
	// UntilIdle stops the server after its last pod is gone.
	UntilIdle bool
	// Self is this program with its leading arguments; it is executed again for pause and containers.
	Self []string
	Log  *slog.Logger
	Now  func() time.Time
	// Failpoint, which may be nil, is called at each step.
	Failpoint func(name string)

	Times Times
}

// Times are the intervals and delays of the kubelet's part.
type Times struct {
	Relist     time.Duration // the PLEG's relist period
	Unhealthy  time.Duration // the age of the last relist above which the PLEG is unhealthy
	BackOff    time.Duration // before the second restart of a container
	BackOffCap time.Duration
	// BackOffReset is how long a container must have run to reset its back-off.
	BackOffReset time.Duration
	Retry        time.Duration // before a failed sync is retried; doubles up to RetryCap
	RetryCap     time.Duration
	Housekeeping time.Duration
}

// KubeletTimes returns the kubelet's defaults.
func KubeletTimes() Times {
	return Times{
		Relist: time.Second, Unhealthy: 3 * time.Minute,
		BackOff: 10 * time.Second, BackOffCap: 5 * time.Minute, BackOffReset: 10 * time.Minute,
		Retry: time.Second, RetryCap: 10 * time.Second, Housekeeping: 2 * time.Second,
	}
}

// Socket returns the path of the API socket of a state directory's server.
func Socket(stateDir string) string { return filepath.Join(stateDir, "sandbox.sock") }

// Orphans reports whether a state directory without a running server has pods, and returns the flags of the last server.
func Orphans(stateDir string) (args []string, found bool) {
	for _, dir := range []string{"pods", "sandboxes", "checkpoints", "netns"} {
		entries, _ := os.ReadDir(filepath.Join(stateDir, dir))
		found = found || len(entries) > 0
	}
	if process.ReadJSON(filepath.Join(stateDir, argsFile), &args) != nil {
		return nil, false // no server has ever used the directory
	}
	return args, found
}

const argsFile = "args.json"

func (c Config) node() pod.Node {
	resolv, _ := os.ReadFile("/etc/resolv.conf") // if it cannot be read, pods get an empty one
	return pod.Node{
		Name: c.Node, LogDir: c.LogDir, PodCIDRs: c.PodCIDRs, ClusterDNS: c.ClusterDNS, Domain: c.Domain, ResolvConf: resolv,
	}
}

// check refuses a state directory that is not writable or belongs to something else.
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
		return model.Errorf(model.CodeInvalidConf, "choose an empty or a new directory with --state-dir",
			"state directory %s contains other files (%s)", c.StateDir, entries[0].Name())
	}
	probe, err := os.CreateTemp(c.StateDir, ".probe")
	if err != nil {
		return unwritable(c.StateDir, err)
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

func unwritable(dir string, err error) error {
	return model.Errorf(model.CodeIO, "choose another one with --state-dir, or run as root",
		"state directory %s is not writable: %w", dir, err)
}
