// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// device is the kubelet's side of one registration.
type device struct {
	name   string
	client api.DevicePluginClient
	conn   *grpc.ClientConn
	lists  chan []string // the IDs of each list; closed at the end of the stream
}

// registry is the kubelet's registration service, which connects back as the kubelet does.
type registry struct {
	api.UnimplementedRegistrationServer
	t   *testing.T
	dir string
	got chan *device
}

func (r *registry) Register(ctx context.Context, q *api.RegisterRequest) (*api.Empty, error) {
	if q.GetVersion() != api.Version {
		return nil, fmt.Errorf("version %q", q.GetVersion())
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, q.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	d := &device{
		name: q.GetResourceName(), client: api.NewDevicePluginClient(conn), conn: conn, lists: make(chan []string, 10),
	}
	stream, err := d.client.ListAndWatch(r.t.Context(), &api.Empty{})
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(d.lists)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			ids := []string{}
			for _, one := range m.GetDevices() {
				if one.GetHealth() == api.Healthy {
					ids = append(ids, one.GetID())
				}
			}
			d.lists <- ids
		}
	}()
	r.got <- d
	return &api.Empty{}, nil
}

// start serves the kubelet's socket, in a directory that it empties first, until stop.
func start(t *testing.T, dir string) (r *registry, stop func()) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, kubelet))
	if err != nil {
		t.Fatal(err)
	}
	r = &registry{t: t, dir: dir, got: make(chan *device, 10)}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, r)
	go func() { _ = s.Serve(l) }()
	stop = sync.OnceFunc(s.Stop)
	t.Cleanup(stop)
	return r, stop
}

// await returns the next value.
func await[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		return v
	}
}

// bench is a Manager with its files.
type bench struct {
	dir, file string
	events    chan model.Event
	tick      chan time.Time // wakes the manager
	stop      func()
}

func manage(t *testing.T, dir, conf string) bench {
	t.Helper()
	b := bench{dir: dir, file: filepath.Join(t.TempDir(), "DP_MACVTAP_CONF"), events: make(chan model.Event, 10), tick: make(chan time.Time)}
	b.write(t, conf)
	events, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = events.Run(ctx) })
	m := New(Config{
		Node: "node1", File: b.file, Dir: dir, Events: events,
		Report: func(_ context.Context, e model.Event) error { b.events <- e; return nil },
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)), After: func(d time.Duration) <-chan time.Time {
			if d == retryRegister {
				return time.After(10 * time.Millisecond)
			}
			return b.tick
		},
	})
	done.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	b.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(b.stop)
	return b
}

func (b bench) write(t *testing.T, conf string) {
	t.Helper()
	if err := os.WriteFile(b.file+".new", []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		t.Fatal(err)
	}
}

const onLoopback = `[{"name": "dataplane", "lowerDevice": "lo", "mode": "vepa", "capacity": 3}]`

// TestKubelet: a resource is registered and allocated, again when the kubelet or the agent is restarted, with the same
// devices; at the end no socket is left.
func TestKubelet(t *testing.T) {
	dir := t.TempDir()
	k, stop := start(t, dir)
	b := manage(t, dir, onLoopback)
	d := await(t, "registration", k.got)
	ids := await(t, "list", d.lists)
	if d.name != "macvtap.network.kubevirt.io/dataplane" || len(ids) != 3 {
		t.Errorf("resource %s has devices %v", d.name, ids)
	}
	first, ok := plugin.ParseMacvtapDevice(ids[0])
	if !ok || first.Lower != "lo" || first.Mode != "vepa" {
		t.Errorf("device %q: %+v %v", ids[0], first, ok)
	}
	answer, err := d.client.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: ids[:1]}, {DevicesIds: ids[1:]},
	}})
	if err != nil {
		t.Fatal(err)
	}
	specs := answer.GetContainerResponses()[0].GetDevices()
	if len(answer.GetContainerResponses()) != 2 || len(specs) != 1 || specs[0].GetHostPath() != first.Path() ||
		specs[0].GetContainerPath() != first.Path() || specs[0].GetPermissions() != "rw" {
		t.Errorf("allocated: %v", answer)
	}
	if _, err := os.Stat(first.Path()); err == nil {
		t.Errorf("%s exists before an ADD", first.Path())
	}
	if _, err = d.client.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{"dataplaneMvp0"}},
	}}); err == nil || !strings.Contains(err.Error(), `"dataplaneMvp0"`) {
		t.Errorf("a device of another plugin: %v", err)
	}

	stop()
	k, _ = start(t, dir)
	d = await(t, "registration at a kubelet that was restarted", k.got)
	if again := await(t, "list", d.lists); !slices.Equal(again, ids) {
		t.Errorf("after a restart of the kubelet: %v, was %v", again, ids)
	}
	if err := d.conn.Close(); err != nil { // as after an error of the stream
		t.Fatal(err)
	}
	d = await(t, "registration after a lost connection", k.got)
	if again := await(t, "list", d.lists); !slices.Equal(again, ids) {
		t.Errorf("after a lost connection: %v, was %v", again, ids)
	}

	b.stop()
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory has %v", left)
	}
	// A killed agent leaves its socket.
	dead, err := net.Listen("unix", filepath.Join(dir, endpoint("dataplane")))
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()
	manage(t, dir, onLoopback)
	d = await(t, "registration by the next agent", k.got)
	if again := await(t, "list", d.lists); !slices.Equal(again, ids) {
		t.Errorf("after a restart of the agent: %v, was %v", again, ids)
	}
}

// TestChanges: the file is followed; a resource that is removed ends, and nothing is offered without the file.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	k, _ := start(t, dir)
	b := manage(t, dir, onLoopback)
	old := await(t, "registration", k.got)
	await(t, "list", old.lists)
	other := strings.Repeat("o", 63) // the longest name
	b.write(t, `[{"name":"`+other+`","lowerDevice":"lo"}]`)
	if _, more := <-old.lists; more {
		t.Error("a removed resource has a new list")
	}
	d := await(t, "registration of another resource", k.got)
	if ids := await(t, "list", d.lists); d.name != Domain+"/"+other || len(ids) != defaultCapacity {
		t.Errorf("%s has %d devices", d.name, len(ids))
	}
	// What is no list leaves the last one in force.
	b.write(t, `{"name":"other"}`)
	if e := await(t, "event", b.events); e.Reason != "InvalidMacvtapConfig" || !e.Warning || !strings.Contains(e.Message, "want a list") {
		t.Errorf("event %+v", e)
	}
	if _, err := d.client.GetDevicePluginOptions(t.Context(), &api.Empty{}); err != nil {
		t.Errorf("the resource is gone: %v", err)
	}
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	if _, more := <-d.lists; more {
		t.Error("a resource without a file")
	}
}

// TestMissingLowerDevice: a resource has no devices while its interface does not exist, which one event says.
func TestMissingLowerDevice(t *testing.T) {
	dir := t.TempDir()
	k, _ := start(t, dir)
	b := manage(t, dir, `[{"name":"a","lowerDevice":"absent0"},{"name":"b","lowerDevice":"lo","capacity":1}]`)
	e := await(t, "event", b.events)
	if want := `resource macvtap.network.kubevirt.io/a has no devices: lowerDevice "absent0" does not exist on the node`; e.Message != want {
		t.Errorf("event %q, want %q", e.Message, want)
	}
	have := map[string]int{}
	for range 2 {
		d := await(t, "registration", k.got)
		have[d.name] = len(await(t, "list", d.lists))
	}
	if have[Domain+"/a"] != 0 || have[Domain+"/b"] != 1 {
		t.Errorf("devices: %v", have)
	}
	b.tick <- time.Time{}
	b.tick <- time.Time{}
	select {
	case e := <-b.events:
		t.Errorf("a second event: %+v", e)
	default:
	}
}

// TestParse: each invalid resource is named with its value, and the others are kept.
func TestParse(t *testing.T) {
	for conf, want := range map[string]string{
		`[{"name":"a","lowerDevice":"eth0"}]`:                               "",
		`[{"name":"a","lowerDevice":"eth0","mode":"bridge","capacity":50}]`: "",
		`[]`:                                    "",
		``:                                      "want a list of resources",
		`{}`:                                    "want a list of resources",
		`[{"name":"a b","lowerDevice":"eth0"}]`: `[0]: name "a b" is not a resource's name`,
		`[{"lowerDevice":"eth0"}]`:              `name "" is not`,
		`[{"name":"a"}]`:                        `lowerDevice "" of resource "a" is not an interface's name`,
		`[{"name":"a","lowerDevice":"eth0","mode":"passthru"}]`:                 `mode "passthru" of resource "a" is not one of bridge, private, vepa`,
		`[{"name":"a","lowerDevice":"eth0","capacity":-1}]`:                     `capacity -1 of resource "a" is not between 1 and 10000`,
		`[{"name":"a","lowerDevice":"eth0","capacity":10001}]`:                  `capacity 10001`,
		`[{"name":"a","lowerDevice":"eth0","capacitiy":5}]`:                     `unknown field "capacitiy"`,
		`[{"name":"a","lowerDevice":"eth0"},{"name":"a","lowerDevice":"eth1"}]`: `[1]: name "a" is used twice`,
	} {
		_, err := ParseResources([]byte(conf))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conf, err, want)
		}
	}
	got, err := ParseResources([]byte(`[{"name":"a","lowerDevice":"eth0"},{"name":"b","lowerDevice":"eth0","mode":"x"}]`))
	if err == nil || len(got) != 1 || got[0] != (Resource{Name: "a", LowerDevice: "eth0", Mode: "bridge", Capacity: 100}) {
		t.Errorf("one of two: %+v %v", got, err)
	}
	if got := ofLinks([]string{"eth0", "-x"}); len(got) != 1 || got[0].LowerDevice != "eth0" {
		t.Errorf("of links: %+v", got)
	}
}
