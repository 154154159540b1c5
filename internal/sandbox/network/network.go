// SPDX-License-Identifier: Apache-2.0

// Package network attaches pods to their networks and detaches them, through libcni, as a container runtime does:
// loopback first, then the default network.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
)

// The interfaces of a pod.
const (
	IfLoopback = "lo"
	IfDefault  = "eth0"
)

// Attachment is an attachment of a pod to one network. It is recorded before ADD, so that a restarted runtime can call
// DEL.
type Attachment struct {
	IfName string          `json:"ifName"`
	List   json.RawMessage `json:"list"`
}

// Pod has the arguments of the plugins for a pod.
type Pod struct {
	ID    string // of the sandbox
	Netns string
	Args  [][2]string    // CNI_ARGS
	Caps  map[string]any // capability arguments; a plugin gets the ones that it declares
}

// Result is the result of the default network.
type Result struct {
	IPs    []netip.Addr    `json:"ips,omitempty"`
	DNS    model.DNS       `json:"dns,omitzero"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Config configures an Attacher.
type Config struct {
	BinDirs  []string
	CacheDir string
	Stderr   io.Writer // of the plugins
	// Failpoint, which may be nil, is called at each step.
	Failpoint func(name string)
}

// Attacher attaches pods to networks. It is safe for concurrent use.
type Attacher struct {
	lib       *libcni.CNIConfig
	failpoint func(string)
}

// New returns an Attacher.
func New(cfg Config) *Attacher {
	if cfg.Failpoint == nil {
		cfg.Failpoint = func(string) {}
	}
	return &Attacher{lib: NewLib(cfg.BinDirs, cfg.CacheDir, cfg.Stderr), failpoint: cfg.Failpoint}
}

// NewLib returns libcni with a cache directory.
func NewLib(binDirs []string, cacheDir string, stderr io.Writer) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(binDirs, cacheDir, newExecutor(stderr))
}

// Validator returns the validator of network configurations.
func (at *Attacher) Validator() confdir.Validator { return at.lib }

// Plan returns the attachments of a pod, in order.
func Plan(s confdir.Snapshot) ([]Attachment, error) {
	if s.Problem != "" {
		return nil, model.Errorf(model.CodeNotAvailable, "put a network configuration into "+s.Dir,
			"network is not ready: %s", s.Problem)
	}
	return []Attachment{{IfLoopback, s.Loopback.Bytes}, {IfDefault, s.Default.Bytes}}, nil
}

// SetUpPod attaches the pod to its networks in order. It stops at the first error; the caller must call TearDownPod then.
func (at *Attacher) SetUpPod(ctx context.Context, pod Pod, as []Attachment) (Result, error) {
	var out Result
	for _, a := range as {
		list, rt, err := at.prepare(pod, a)
		if err != nil {
			return out, err
		}
		r, err := at.lib.AddNetworkList(ctx, list, rt)
		if err != nil {
			return out, fmt.Errorf("network %s, interface %s: %w", list.Name, a.IfName, explain(err))
		}
		at.failpoint("attached " + a.IfName)
		if a.IfName == IfLoopback {
			continue
		}
		if out, err = read(r); err != nil {
			return out, fmt.Errorf("network %s, interface %s: result: %w", list.Name, a.IfName, err)
		}
	}
	return out, nil
}

func (at *Attacher) prepare(pod Pod, a Attachment) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	list, err := libcni.NetworkConfFromBytes(a.List)
	if err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", a.IfName, err)
	}
	return list, &libcni.RuntimeConf{
		ContainerID: pod.ID, NetNS: pod.Netns, IfName: a.IfName, Args: pod.Args, CapabilityArgs: pod.Caps,
	}, nil
}

// explain appends the code and the details of a plugin's error.
func explain(err error) error {
	var e *types.Error
	if errors.As(err, &e) && e.Details != "" {
		return fmt.Errorf("%w (code %d, %s)", err, e.Code, e.Details)
	}
	if errors.As(err, &e) {
		return fmt.Errorf("%w (code %d)", err, e.Code)
	}
	return err
}

func read(r types.Result) (Result, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return Result{}, err
	}
	m, err := cni.ParseResult(b)
	if err != nil {
		return Result{}, err
	}
	out := Result{DNS: m.DNS, Result: b}
	for _, ip := range m.IPs {
		if a := ip.Address.Addr(); !slices.Contains(out.IPs, a) {
			out.IPs = append(out.IPs, a)
		}
	}
	if len(out.IPs) == 0 {
		return out, errors.New("no addresses")
	}
	return out, nil
}

// TearDownPod detaches the pod from its networks, in reverse order. It is idempotent and accepts that the namespace does
// not exist. It calls every network and returns all errors. The configuration in the CNI cache takes precedence.
func (at *Attacher) TearDownPod(ctx context.Context, pod Pod, as []Attachment) error {
	if _, err := os.Stat(pod.Netns); err != nil {
		pod.Netns = ""
	}
	var errs []error
	for _, a := range slices.Backward(as) {
		if err := at.detach(ctx, pod, a); err != nil {
			errs = append(errs, err)
		}
		at.failpoint("detached " + a.IfName)
	}
	return errors.Join(errs...)
}

func (at *Attacher) detach(ctx context.Context, pod Pod, a Attachment) error {
	list, rt, err := at.prepare(pod, a)
	if err != nil {
		return err
	}
	list, rt = at.cached(list, rt)
	if err := at.lib.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("network %s, interface %s: %w", list.Name, a.IfName, explain(err))
	}
	return nil
}

// cached returns the configuration with which the attachment was created, if the cache has it.
func (at *Attacher) cached(
	list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
) (*libcni.NetworkConfigList, *libcni.RuntimeConf) {
	conf, old, err := at.lib.GetNetworkListCachedConfig(list, rt)
	if err != nil || conf == nil {
		return list, rt
	}
	then, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return list, rt
	}
	return then, old
}

// CleanCache deletes attachments in the CNI cache whose namespace is in dir and whose sandbox does not exist. It does not
// touch attachments of other runtimes that share the cache. It returns the number of deleted attachments.
func (at *Attacher) CleanCache(ctx context.Context, dir string, exists func(id string) bool) (int, error) {
	all, err := at.lib.GetCachedAttachments("")
	if err != nil {
		return 0, fmt.Errorf("network cache: %w", err)
	}
	n := 0
	var errs []error
	for _, a := range all {
		if filepath.Dir(a.NetNS) != filepath.Clean(dir) || exists(a.ContainerID) {
			continue
		}
		err := at.TearDownPod(ctx, Pod{ID: a.ContainerID, Netns: a.NetNS, Args: a.CniArgs, Caps: a.CapabilityArgs},
			[]Attachment{{a.IfName, a.Config}})
		if err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", a.ContainerID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// GC calls the network's plugins with GC: they delete everything that belongs to no attachment in the CNI cache.
func (at *Attacher) GC(ctx context.Context, list *confdir.Network) error {
	if ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0"); err != nil || !ok {
		return err
	}
	all, err := at.lib.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("network cache: %w", err)
	}
	valid := []types.GCAttachment{}
	for _, a := range all {
		if a.Network == list.Name {
			valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	return at.lib.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
}
