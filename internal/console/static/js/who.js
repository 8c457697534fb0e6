// Who is signed in, and what the page therefore offers. The server decides for itself.
let me = null;

export const signedIn = (who) => (me = who);

// mayNot says why nothing can be changed; empty where it can.
export const mayNot = () => (me?.role === "reader" ? "You are signed in with a reader key, which changes nothing." : "");
