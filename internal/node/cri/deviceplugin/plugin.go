// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weft-net/weft/internal/plan/plugin"
)

// registerLimit limits a registration: the kubelet connects to the device plugin before it answers.
const registerLimit = 10 * time.Second

// server serves the devices of one resource on a socket of the kubelet's directory.
type server struct {
	api.UnimplementedDevicePluginServer

	resource Resource
	devices  []plugin.MacvtapDevice
	// available reports whether the lower interface exists.
	available func() bool
	// changed returns a channel that is closed when available may have changed.
	changed func() <-chan struct{}
	// lost is called when the kubelet has ended the stream of devices: it does not use the resource until it registers again.
	lost    func()
	stopped chan struct{}

	path string
	self identity
	grpc *grpc.Server
}

// endpoint returns the name of a resource's socket. A resource's own name may be too long: the path of a socket has at
// most 107 bytes.
func endpoint(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf("weft-macvtap-%016x.sock", h.Sum64())
}

// listen creates the socket and serves it.
func (s *server) listen(dir string) error {
	s.path = filepath.Join(dir, endpoint(s.resource.Name))
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("socket of device plugin: %w", err)
	}
	l, err := net.Listen("unix", s.path)
	if err != nil {
		return fmt.Errorf("socket of device plugin: %w", err)
	}
	// Another process may have a socket of that name when this one ends.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if s.self, err = identify(s.path); err != nil {
		return errors.Join(fmt.Errorf("socket of device plugin: %w", err), l.Close())
	}
	s.stopped, s.grpc = make(chan struct{}), grpc.NewServer()
	api.RegisterDevicePluginServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(l) }() // ends with close
	return nil
}

// served reports whether the socket is still the one that listen created. The kubelet empties the directory when it starts.
func (s *server) served() bool {
	now, err := identify(s.path)
	return err == nil && now == s.self
}

func (s *server) close() {
	close(s.stopped)
	s.grpc.Stop()
	if s.served() {
		_ = os.Remove(s.path)
	}
}

// register announces the resource to the kubelet, which connects to the socket.
func (s *server) register(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, kubelet),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of the node that only root may connect to
		grpc.WithDisableServiceConfig())
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint(s.resource.Name), ResourceName: Domain + "/" + s.resource.Name,
		Options: &api.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("kubelet: registration of resource %s/%s: %w", Domain, s.resource.Name, err)
	}
	return nil
}

// GetDevicePluginOptions returns none.
func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices, and again when the lower interface appears or disappears: without it there are none.
func (s *server) ListAndWatch(
	_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse],
) error {
	sent := false
	for first := true; ; first = false {
		changed := s.changed()
		if now := s.available(); first || now != sent {
			sent = now
			answer := &api.ListAndWatchResponse{}
			if now {
				for _, d := range s.devices {
					answer.Devices = append(answer.Devices, &api.Device{ID: d.ID(), Health: api.Healthy})
				}
			}
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.stopped:
			return nil
		case <-stream.Context().Done():
			s.lost()
			return nil
		}
	}
}

// Allocate lets a container open the files of devices. Nothing is created: the ADD of the pod's network creates the link,
// before the runtime looks for the file.
func (s *server) Allocate(
	_ context.Context, request *api.AllocateRequest,
) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		one := &api.ContainerAllocateResponse{}
		for _, id := range container.GetDevicesIds() {
			d, ok := plugin.ParseMacvtapDevice(id)
			if !ok {
				return nil, status.Errorf(codes.InvalidArgument, "device %q of resource %s/%s is not one of weft's", id, Domain,
					s.resource.Name)
			}
			one.Devices = append(one.Devices, &api.DeviceSpec{
				ContainerPath: d.Path(), HostPath: d.Path(), Permissions: "rw",
			})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}
