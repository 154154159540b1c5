// SPDX-License-Identifier: Apache-2.0

// Package cnm has the JSON types of Docker's protocols for remote network drivers and remote IPAM drivers, as
// docs/remote.md and docs/ipam.md of moby/libnetwork describe them and drivers/remote/api and ipams/remote/api define
// them (moby v20.10.24). They are written here, so that no module of Docker is linked.
//
// A driver answers POST requests on a unix socket in /run/docker/plugins. An answer with a status other than 200 has the
// error in Err, for both protocols.
package cnm

// ContentType is the type of all bodies.
const ContentType = "application/vnd.docker.plugins.v1.2+json"

// The names of options.
const (
	// OptionGeneric has, in CreateNetwork, the options of the user (docker network create -o).
	OptionGeneric = "com.docker.network.generic"
	// OptionInternal is set in CreateNetwork for --internal.
	OptionInternal = "com.docker.network.internal"
	// OptionMTU is the MTU, as the bridge driver names it.
	OptionMTU = "com.docker.network.driver.mtu"
	// OptionMAC has, in RequestAddress, the MAC address of the endpoint.
	OptionMAC = "com.docker.network.endpoint.macaddress"
	// OptionIfName has, in CreateEndpoint, the interface's name in the container, from dockerd 28 on. Join has no field for it.
	OptionIfName = "com.docker.network.endpoint.ifname"
	// OptionPortMap has, in CreateEndpoint, Join and ProgramExternalConnectivity, the ports to publish, a list of PortBinding.
	OptionPortMap = "com.docker.network.portmap"
	// OptionOnlyIPv4 is set in ProgramExternalConnectivity from dockerd 28 on if the IPv6 gateway of the container is on
	// another network, which has the ports of IPv6 addresses.
	OptionOnlyIPv4 = "com.docker.network.driver.private.no_proxy_6to4"
	// OptionGateway has, in the data of RequestPool's answer, the gateway, for which no address is requested then. It is
	// also the value of OptionAddressType for a gateway.
	OptionGateway = "com.docker.network.gateway"
	// OptionAddressType has, in RequestAddress, the purpose of an address that is no endpoint's.
	OptionAddressType = "RequestAddressType"
)

// Activation is the answer to /Plugin.Activate.
type Activation struct {
	Implements []string
}

// Failure is an answer with an error.
type Failure struct {
	Err string
}

// NetworkCapabilities are those of a network driver. Scope local: each dockerd has its own networks.
type NetworkCapabilities struct {
	Scope             string
	ConnectivityScope string
}

// IPAMData is a pool of a network.
type IPAMData struct {
	AddressSpace string
	Pool         string
	Gateway      string // CIDR
	AuxAddresses map[string]any
}

// CreateNetwork is a request.
type CreateNetwork struct {
	NetworkID string
	Options   map[string]any
	IPv4Data  []IPAMData
	IPv6Data  []IPAMData
}

// DeleteNetwork is a request.
type DeleteNetwork struct {
	NetworkID string
}

// EndpointInterface is an endpoint's interface; addresses are CIDRs.
type EndpointInterface struct {
	Address     string
	AddressIPv6 string
	MacAddress  string
}

// CreateEndpoint is a request.
type CreateEndpoint struct {
	NetworkID  string
	EndpointID string
	Interface  *EndpointInterface
	Options    map[string]any
}

// CreatedEndpoint is its answer. Interface has only what the request lacked.
type CreatedEndpoint struct {
	Interface *EndpointInterface
}

// EndpointRequest is the request of DeleteEndpoint, EndpointOperInfo, Leave, ProgramExternalConnectivity and
// RevokeExternalConnectivity.
type EndpointRequest struct {
	NetworkID  string
	EndpointID string
	Options    map[string]any
}

// PortBinding is a port of the container to publish at ports of the host; HostPort 0: the driver chooses one.
type PortBinding struct {
	Proto       uint8 // the protocol's number
	Port        uint16
	HostIP      string
	HostPort    uint16
	HostPortEnd uint16
}

// OperInfo is the answer to EndpointOperInfo.
type OperInfo struct {
	Value map[string]any
}

// Join is a request. SandboxKey does not exist yet.
type Join struct {
	NetworkID  string
	EndpointID string
	SandboxKey string
	Options    map[string]any
}

// The types of static routes.
const (
	RouteNextHop   = 0
	RouteConnected = 1
)

// StaticRoute is a route in the sandbox.
type StaticRoute struct {
	Destination string
	RouteType   int
	NextHop     string
}

// InterfaceName names the interface in the node's namespace, and begins its name in the sandbox.
type InterfaceName struct {
	SrcName   string
	DstPrefix string
}

// Joined is the answer to Join.
type Joined struct {
	InterfaceName         InterfaceName
	Gateway               string
	GatewayIPv6           string
	StaticRoutes          []StaticRoute
	DisableGatewayService bool
}

// IPAMCapabilities are those of an IPAM driver.
type IPAMCapabilities struct {
	RequiresMACAddress    bool
	RequiresRequestReplay bool
}

// AddressSpaces are the names of address spaces. From version 27 on, dockerd does not check networks in the global one for
// overlaps.
type AddressSpaces struct {
	LocalDefaultAddressSpace  string
	GlobalDefaultAddressSpace string
}

// RequestPool is a request.
type RequestPool struct {
	AddressSpace string
	Pool         string
	SubPool      string
	Options      map[string]string
	V6           bool
}

// Pool is its answer.
type Pool struct {
	PoolID string
	Pool   string // CIDR
	Data   map[string]string
}

// ReleasePool is a request.
type ReleasePool struct {
	PoolID string
}

// RequestAddress is a request. Address is that of --ip, or empty.
type RequestAddress struct {
	PoolID  string
	Address string
	Options map[string]string
}

// Address is its answer, a CIDR.
type Address struct {
	Address string
	Data    map[string]string
}

// ReleaseAddress is a request.
type ReleaseAddress struct {
	PoolID  string
	Address string
}
