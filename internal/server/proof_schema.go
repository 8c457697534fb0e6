package server

// The documents of package fairdraw have a strict encoding of their own; these types describe them in the contract's
// document and are never encoded. docs/design/fairdraw.md specifies them to the byte.
type (
	proofDocument struct {
		Versions   proofVersions   `json:"versions"`
		Campaign   string          `json:"campaign"`
		Commitment string          `json:"commitment" doc:"hex SHA-256 of the server seed"`
		ServerSeed string          `json:"server_seed" doc:"32 bytes in hex"`
		Root       string          `json:"root" doc:"of the sealed positions, 32 bytes in hex"`
		DrawSeed   string          `json:"draw_seed" doc:"key of the random streams, 32 bytes in hex"`
		Beacon     *proofBeacon    `json:"beacon,omitempty" doc:"absent in instant mode"`
		Positions  []proofPosition `json:"positions"`
		Prizes     []proofPrize    `json:"prizes"`
		Winners    []winnerView    `json:"winners"`
	}
	inclusionDocument struct {
		Versions proofVersions `json:"versions"`
		Campaign string        `json:"campaign"`
		Root     string        `json:"root" doc:"32 bytes in hex"`
		Position proofPosition `json:"position"`
		Index    int           `json:"index" doc:"place of the position in canonical order, from 0"`
		Size     int           `json:"size" doc:"number of positions"`
		Siblings []string      `json:"siblings" doc:"hashes in hex, from the leaf upward"`
	}
	proofVersions struct {
		Document  int `json:"document"`
		Algorithm int `json:"algorithm"`
	}
	proofBeacon struct {
		Scheme            string `json:"scheme" doc:"drand's name of the way of signing"`
		ChainHash         string `json:"chain_hash" doc:"hex"`
		PublicKey         string `json:"public_key" doc:"the chain's, in hex"`
		Period            int    `json:"period" doc:"seconds between two rounds"`
		GenesisTime       int64  `json:"genesis_time" doc:"when round 1 was due, Unix seconds"`
		GenesisSeed       string `json:"genesis_seed" doc:"hex"`
		BeaconID          string `json:"beacon_id" doc:"the chain's name"`
		Round             int64  `json:"round" doc:"the one that was named at sell-out"`
		Signature         string `json:"signature" doc:"in hex"`
		PreviousSignature string `json:"previous_signature,omitempty" doc:"in hex, of chains that sign it too"`
	}
	proofPosition struct {
		ID      string `json:"id"`
		Layer   int    `json:"layer"`
		Number  int    `json:"number"`
		Account string `json:"account"`
	}
	proofPrize struct {
		Name     string `json:"name"`
		Layer    int    `json:"layer" doc:"0: any"`
		Quantity int    `json:"quantity"`
	}
)
