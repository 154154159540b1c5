// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin is a device plugin of the kubelet: it offers macvtaps on the node's interfaces as the resources of
// macvtap-cni, by the same configuration. A container with such a device may open /dev/tapN, and the plugin
// plan/plugin.Macvtap creates the link with that index when its pod's network is attached.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Directory is where the kubelet and its device plugins have their sockets.
const Directory = "/var/lib/kubelet/device-plugins"

const (
	kubelet = "kubelet.sock"
	// resyncPeriod is how often interfaces and files are looked at without an event.
	resyncPeriod = 10 * time.Second
	// retryRegister is the time after a failed registration: the kubelet creates its socket before it answers there.
	retryRegister = time.Second
)

// Config is what a Manager needs.
type Config struct {
	Node string
	// File has DP_MACVTAP_CONF of macvtap-cni, a list of resources; without the file there are none. An empty list offers
	// one for each physical interface and bond, named like it.
	File string
	// Dir is the kubelet's directory, as the agent sees it.
	Dir string
	// Events reports changes of directories; nil: they are looked at periodically.
	Events *inotify.Instance
	// Report records an event of the node; nil: problems are only logged.
	Report func(ctx context.Context, e model.Event) error
	Log    *slog.Logger
	After  func(time.Duration) <-chan time.Time
}

// Manager offers the resources of the configuration to the kubelet.
type Manager struct {
	cfg Config

	file    []Resource // as last read
	derived bool       // the file has an empty list
	trouble string     // what was last reported
	missing map[string]bool

	servers map[string]*running
	wake    notify.Chan
	kubelet identity // its socket when the servers registered

	mu           sync.Mutex
	links        map[string]bool // the node's interfaces
	linksChanged chan struct{}   // closed when links has changed
}

// running is a server and whether the kubelet knows it.
type running struct {
	*server
	registered atomic.Bool
}

// New returns a Manager; Run must be called.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, servers: map[string]*running{}, wake: notify.New(), missing: map[string]bool{}, links: map[string]bool{}, linksChanged: make(chan struct{}),
	}
}

// Run offers the resources until ctx ends. The kubelet keeps what it has allocated, and an agent that starts offers the
// same devices.
func (m *Manager) Run(ctx context.Context) error {
	const mask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE
	watching := map[string]bool{}
	defer func() {
		for _, s := range m.servers {
			s.close()
		}
	}()
	for {
		for _, dir := range []string{m.cfg.Dir, filepath.Dir(m.cfg.File)} {
			if watching[dir] {
				continue
			}
			// A directory that does not exist yet is watched later; until then it is looked at periodically.
			remove, err := m.cfg.Events.Watch(dir, mask, func(string) { m.wake.Notify() })
			if watching[dir] = err == nil; watching[dir] {
				defer remove()
			}
		}
		wait := resyncPeriod
		if !m.pass(ctx) {
			wait = retryRegister
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-m.cfg.After(wait):
		}
	}
}

// pass makes the servers equal to the configuration and reports whether the kubelet knows all of them.
func (m *Manager) pass(ctx context.Context) bool {
	m.readLinks()
	m.read(ctx)
	wanted := m.file
	if m.derived {
		wanted = ofLinks(physical())
	}
	m.reportMissing(ctx, wanted)
	current, err := identify(filepath.Join(m.cfg.Dir, kubelet))
	for name, s := range m.servers {
		if !slices.Contains(wanted, s.resource) || !s.served() || err == nil && current != m.kubelet {
			s.close()
			delete(m.servers, name)
		}
	}
	if err != nil {
		return len(wanted) == 0 // the kubelet is not running
	}
	m.kubelet = current
	all := true
	for _, r := range wanted {
		if err := m.offer(ctx, r); err != nil {
			m.cfg.Log.Warn("macvtaps could not be offered to the kubelet", "resource", Domain+"/"+r.Name, "err", err)
			all = false
		}
	}
	return all
}

// offer starts the server of a resource and registers it.
func (m *Manager) offer(ctx context.Context, r Resource) error {
	s := m.servers[r.Name]
	if s == nil {
		s = &running{server: &server{
			resource: r, devices: r.devices(m.cfg.Node), available: func() bool { return m.exists(r.LowerDevice) }, changed: m.changes,
		}}
		s.lost = func() { s.registered.Store(false); m.wake.Notify() }
		if err := s.listen(m.cfg.Dir); err != nil {
			return err
		}
		m.servers[r.Name] = s
	}
	if s.registered.Load() {
		return nil
	}
	s.registered.Store(true) // before the kubelet connects, whose end of the stream makes it false
	if err := s.register(ctx, m.cfg.Dir); err != nil {
		s.registered.Store(false)
		return err
	}
	m.cfg.Log.Info("macvtaps are offered to the kubelet", "resource", Domain+"/"+r.Name, "lowerDevice", r.LowerDevice,
		"mode", r.Mode, "capacity", r.Capacity)
	return nil
}

// read reads the configuration. Valid resources are served in spite of invalid ones, which are reported; what is no list
// leaves the last one in force.
func (m *Manager) read(ctx context.Context) {
	text, err := os.ReadFile(m.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		m.file, m.derived, m.trouble = nil, false, ""
		return
	}
	var list []Resource
	if err == nil {
		list, err = ParseResources(text)
	}
	if err != nil {
		m.report(ctx, fmt.Errorf("%s: %w", filepath.Base(m.cfg.File), err))
	} else {
		m.trouble = ""
	}
	if list != nil {
		m.file, m.derived = list, len(list) == 0 && err == nil
	}
}

// report logs a problem of the configuration and records it as an event, once.
func (m *Manager) report(ctx context.Context, err error) {
	if err.Error() == m.trouble {
		return
	}
	m.trouble = err.Error()
	m.cfg.Log.Error("configuration of macvtaps is invalid", "err", err)
	m.event(ctx, "InvalidMacvtapConfig", err.Error())
}

// reportMissing reports resources whose lower interface does not exist, once for each time it disappears.
func (m *Manager) reportMissing(ctx context.Context, wanted []Resource) {
	now := map[string]bool{}
	for _, r := range wanted {
		if m.exists(r.LowerDevice) {
			continue
		}
		now[r.Name] = true
		if !m.missing[r.Name] {
			text := fmt.Sprintf("resource %s/%s has no devices: lowerDevice %q does not exist on the node", Domain, r.Name, r.LowerDevice)
			m.cfg.Log.Warn(text)
			m.event(ctx, "MacvtapLowerDeviceMissing", text)
		}
	}
	m.missing = now
}

func (m *Manager) event(ctx context.Context, reason, text string) {
	if m.cfg.Report == nil {
		return
	}
	if err := m.cfg.Report(ctx, model.Event{Warning: true, Reason: reason, Message: text}); err != nil {
		m.cfg.Log.Warn("event could not be recorded", "err", err)
	}
}

// readLinks reads the names of the node's interfaces.
func (m *Manager) readLinks() {
	all, err := net.Interfaces()
	if err != nil {
		m.cfg.Log.Warn("interfaces cannot be listed", "err", err)
		return
	}
	now := map[string]bool{}
	for _, i := range all {
		now[i.Name] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	same := len(now) == len(m.links)
	for name := range now {
		same = same && m.links[name]
	}
	if !same {
		m.links = now
		close(m.linksChanged)
		m.linksChanged = make(chan struct{})
	}
}

func (m *Manager) exists(link string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.links[link]
}

func (m *Manager) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.linksChanged
}

// physical returns the node's physical interfaces and bonds.
func physical() []string {
	var out []string
	all, _ := filepath.Glob("/sys/class/net/*")
	for _, path := range all {
		_, device := os.Stat(filepath.Join(path, "device"))
		_, bond := os.Stat(filepath.Join(path, "bonding"))
		if device == nil || bond == nil {
			out = append(out, filepath.Base(path))
		}
	}
	return out
}

// identity distinguishes a socket from an earlier one of the same path: file systems use an inode again at once.
type identity struct {
	inode   uint64
	changed syscall.Timespec
}

func identify(path string) (identity, error) {
	var s syscall.Stat_t
	if err := syscall.Lstat(path, &s); err != nil {
		return identity{}, fmt.Errorf("%s: %w", path, err)
	}
	return identity{inode: s.Ino, changed: s.Ctim}, nil
}
