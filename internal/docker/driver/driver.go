// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/notify"
)

// Config configures a Driver.
type Config struct {
	// Socket is the plugin's socket. Its name without the suffix is the driver's name in Docker.
	Socket string
	// Host is dockerd's API, unix:///PATH.
	Host string
	// ConfDir is the directory of the runtime's network configuration, which the agent writes.
	ConfDir string
	// StateDir is where networks and endpoints are recorded. It must survive a reboot, as Docker's networks do.
	StateDir string
	// RunDir has the namespaces of attachments that no container has yet.
	RunDir string
	// Boot identifies the host's boot.
	Boot string
	Rand io.Reader
	Now  func() time.Time
	// After returns a channel that fires after a duration, as time.After.
	After func(time.Duration) <-chan time.Time
	Log   *slog.Logger
	// Failpoint, which may be nil, is called after each step of publishing ports.
	Failpoint failpoint.Hook
}

// Driver is a remote network driver and IPAM driver.
type Driver struct {
	socket  string
	nsDir   string
	boot    string
	agent   *agent
	engine  *engine
	records *records
	rand    io.Reader
	now     func() time.Time
	after   func(time.Duration) <-chan time.Time
	log     *slog.Logger
	fail    failpoint.Hook

	making sync.Mutex  // held while a pool chooses its gateway
	wake   notify.Chan // there may be an endpoint to open

	publishing sync.Mutex // held while the agent is asked to publish ports
}

// New makes a Driver and reads its records.
func New(c Config) (*Driver, error) {
	e, err := newEngine(c.Host)
	if err != nil {
		return nil, err
	}
	r, err := openRecords(c.StateDir, c.Boot)
	if err != nil {
		return nil, err
	}
	return &Driver{
		socket: c.Socket, nsDir: filepath.Join(c.RunDir, "netns"), boot: c.Boot, agent: &agent{confDir: c.ConfDir, now: c.Now}, engine: e,
		records: r, rand: c.Rand, now: c.Now, after: c.After, log: c.Log, fail: c.Failpoint, wake: notify.New(),
	}, nil
}

// Run serves the driver until ctx ends. ready is called when dockerd can connect.
func (d *Driver) Run(ctx context.Context, ready func()) error {
	l, err := listen(d.socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { d.openAll(ctx) })
	parts.Go(func() { d.collectAll(ctx) })
	ready()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("socket %s: %w", d.socket, err)
	}
	return nil
}

// listen replaces the socket of a killed driver.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("socket %s: another driver answers on it (end that one, or choose another --socket)", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// handler routes the requests of both protocols.
func (d *Driver) handler() http.Handler {
	mux := http.NewServeMux()
	const net, ipam = "/NetworkDriver.", "/IpamDriver."
	fixed := func(value any) func(context.Context, struct{}) (any, error) {
		return func(context.Context, struct{}) (any, error) { return value, nil }
	}
	handle(d, mux, "/Plugin.Activate", fixed(cnm.Activation{Implements: []string{"NetworkDriver", "IpamDriver"}}))
	handle(d, mux, net+"GetCapabilities", fixed(cnm.NetworkCapabilities{Scope: "local", ConnectivityScope: "global"}))
	handle(d, mux, net+"AllocateNetwork", fixed(struct{}{})) // swarm's, for drivers of scope global
	handle(d, mux, net+"FreeNetwork", fixed(struct{}{}))
	handle(d, mux, net+"DiscoverNew", fixed(struct{}{}))
	handle(d, mux, net+"DiscoverDelete", fixed(struct{}{}))
	handle(d, mux, net+"CreateNetwork", d.createNetwork)
	handle(d, mux, net+"DeleteNetwork", d.deleteNetwork)
	handle(d, mux, net+"CreateEndpoint", d.createEndpoint)
	handle(d, mux, net+"DeleteEndpoint", d.deleteEndpoint)
	handle(d, mux, net+"EndpointOperInfo", fixed(cnm.OperInfo{Value: map[string]any{}}))
	handle(d, mux, net+"Join", d.join)
	handle(d, mux, net+"Leave", d.leave)
	handle(d, mux, net+"ProgramExternalConnectivity", d.publish)
	handle(d, mux, net+"RevokeExternalConnectivity", d.revoke)
	handle(d, mux, ipam+"GetCapabilities", fixed(cnm.IPAMCapabilities{RequiresMACAddress: true}))
	handle(d, mux, ipam+"GetDefaultAddressSpaces", fixed(cnm.AddressSpaces{
		LocalDefaultAddressSpace: "weft-local", GlobalDefaultAddressSpace: "weft-global",
	}))
	handle(d, mux, ipam+"RequestPool", d.requestPool)
	handle(d, mux, ipam+"ReleasePool", d.releasePool)
	handle(d, mux, ipam+"RequestAddress", d.requestAddress)
	handle(d, mux, ipam+"ReleaseAddress", d.releaseAddress)
	return mux
}

// handle decodes requests, and encodes answers and errors.
func handle[T any](d *Driver, mux *http.ServeMux, path string, do func(context.Context, T) (any, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var q T
		start := d.now()
		const most = 1 << 20 // bytes
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(&q)
		if errors.Is(err, io.EOF) { // no body
			err = nil
		}
		var answer any
		if err == nil {
			// A call ends also if dockerd is killed meanwhile: what it began is recorded, and found again.
			answer, err = do(context.WithoutCancel(r.Context()), q)
		} else {
			err = fmt.Errorf("request: %w", err)
		}
		w.Header().Set("Content-Type", cnm.ContentType)
		log := d.log.With("call", path[1:], "took", d.now().Sub(start).Round(time.Millisecond))
		if err != nil {
			log.Warn("call failed", "err", err)
			w.WriteHeader(http.StatusInternalServerError)
			answer = cnm.Failure{Err: err.Error()}
		} else {
			log.Debug("call done")
		}
		_ = json.NewEncoder(w).Encode(answer) // dockerd is gone
	})
}
