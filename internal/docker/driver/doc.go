// SPDX-License-Identifier: Apache-2.0

// Package driver is a remote network driver and IPAM driver of Docker: it maps Docker's container network model to the
// agent's attachments. The agent does the work; the driver keeps which of Docker's networks and endpoints is which
// attachment.
//
// # The mapping
//
//	docker network create   RequestPool     the pool gets a gateway that no other network of this dockerd has
//	                        CreateNetwork   the pool that has this gateway gets the network's options
//	docker run, connect     RequestAddress  ADD, for a namespace in which nothing runs: the address is the attachment's.
//	                                        On a network of both families the second request is for its IPv6 address; if
//	                                        --ip6 requests another one, a DEL and an ADD for both addresses follow
//	                        CreateEndpoint  the attachment that has this address is the endpoint's
//	                        Join            the agent moves the interface into the node's namespace, closed; dockerd moves
//	                                        it into the container
//	                        (labels)        the driver finds the container by the API of dockerd, the agent opens it
//	docker stop, disconnect Leave, DeleteEndpoint, ReleaseAddress   DEL
//
// An attachment is one of a pod of its own, without a Pod object: the interface is eth0 in it. --ip, --mac-address and
// the options of the network are the annotations of that pod.
//
// # Processes that die
//
// What is recorded here is written before the call that it is about. A Docker daemon that was killed releases the
// endpoints of its containers when it starts again; what it does not know any more, and what a killed driver has left, is
// found by comparing the records with the daemon's list of endpoints (collect).
package driver
