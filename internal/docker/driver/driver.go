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

// Driver is a remote network driver and IPAM driver: it serves dockerd's calls, each of which is one of its parts'.
type Driver struct {
	socket string
	now    func() time.Time
	log    *slog.Logger

	networks  *networks
	addresses *addresses
	endpoints *endpoints
	ports     *publisher
	labels    *opener
	collector *collector
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
	a := &agent{confDir: c.ConfDir, now: c.Now}
	at := &attachments{agent: a, records: r, nsDir: filepath.Join(c.RunDir, "netns")}
	labels := &opener{agent: a, engine: e, records: r, after: c.After, wake: notify.New(), log: c.Log}
	ports := &publisher{agent: a, records: r, fail: c.Failpoint, log: c.Log}
	return &Driver{
		socket: c.Socket, now: c.Now, log: c.Log,
		networks:  &networks{agent: a, engine: e, records: r, rand: c.Rand},
		addresses: &addresses{attachments: at, records: r, boot: c.Boot, rand: c.Rand, now: c.Now},
		endpoints: &endpoints{agent: a, attachments: at, records: r, joined: labels.wake, log: c.Log},
		ports:     ports, labels: labels,
		collector: &collector{
			agent: a, engine: e, attachments: at, ports: ports, records: r, now: c.Now, after: c.After, log: c.Log,
		},
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
	parts.Go(func() { d.labels.openAll(ctx) })
	parts.Go(func() { d.collector.collectAll(ctx) })
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
	handle(d, mux, net+"CreateNetwork", d.networks.createNetwork)
	handle(d, mux, net+"DeleteNetwork", d.networks.deleteNetwork)
	handle(d, mux, net+"CreateEndpoint", d.endpoints.createEndpoint)
	handle(d, mux, net+"DeleteEndpoint", d.endpoints.deleteEndpoint)
	handle(d, mux, net+"EndpointOperInfo", fixed(cnm.OperInfo{Value: map[string]any{}}))
	handle(d, mux, net+"Join", d.endpoints.join)
	handle(d, mux, net+"Leave", d.endpoints.leave)
	handle(d, mux, net+"ProgramExternalConnectivity", d.ports.publish)
	handle(d, mux, net+"RevokeExternalConnectivity", d.ports.revoke)
	handle(d, mux, ipam+"GetCapabilities", fixed(cnm.IPAMCapabilities{RequiresMACAddress: true}))
	handle(d, mux, ipam+"GetDefaultAddressSpaces", fixed(cnm.AddressSpaces{
		// One for both: dockerd does not look for another subnet where one of a global space overlaps with the host's.
		LocalDefaultAddressSpace: "weft", GlobalDefaultAddressSpace: "weft",
	}))
	handle(d, mux, ipam+"RequestPool", d.networks.requestPool)
	handle(d, mux, ipam+"ReleasePool", d.networks.releasePool)
	handle(d, mux, ipam+"RequestAddress", d.addresses.requestAddress)
	handle(d, mux, ipam+"ReleaseAddress", d.addresses.releaseAddress)
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
